import pytest

from milepost.handlers import ANYTHING, NOTHING, Handler, Message, Reject, Store


def take(request: object, message: Message, store: Store) -> None: ...


def test_the_first_matching_filter_selects_the_function() -> None:
    app = Handler("parking")
    app.on("service/parking/find", accepts=ANYTHING, answers=NOTHING)(take)
    app.on("service/parking/+", accepts=ANYTHING, answers=NOTHING)(take)
    found = [app.find_route(topic) for topic in ("service/parking/find", "service/parking/x", "service/parking")]
    assert [route and route.filter for route in found] == ["service/parking/find", "service/parking/+", None]


def test_the_decorator_returns_the_function_unchanged() -> None:
    assert Handler("parking").on("a", accepts=ANYTHING, answers=NOTHING)(take) is take


def test_validators_are_mandatory() -> None:
    # D11
    app = Handler("parking")
    with pytest.raises(TypeError, match="accepts"):
        app.on("a", answers=NOTHING)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="answers"):
        app.on("a", accepts=ANYTHING)  # type: ignore[call-arg]


@pytest.mark.parametrize("topics", ["a/#/b", "", "$reserved/publish-x", "$share/g/a", "taken"])
def test_an_invalid_reserved_or_duplicate_filter_is_refused(topics: str) -> None:
    app = Handler("parking")
    app.on("taken", accepts=ANYTHING, answers=NOTHING)(take)
    with pytest.raises(ValueError, match=r".+"):
        app.on(topics, accepts=ANYTHING, answers=NOTHING)


def test_a_function_with_other_arguments_is_refused_at_registration() -> None:
    with pytest.raises(TypeError):
        Handler("parking").on("a", accepts=ANYTHING, answers=NOTHING)(lambda request: None)


def test_accepts_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="ANYTHING"):
        Handler("parking").on("a", accepts=NOTHING, answers=NOTHING)


@pytest.mark.parametrize("name", ["", "a b", "a/b", "@a", "a.b", "x" * 49])
def test_a_handler_name_that_is_invalid_in_topics_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="letters"):
        Handler(name)


def test_limits_of_a_handler_are_checked() -> None:
    for partitions in (0, 65):
        with pytest.raises(ValueError, match="partitions"):
            Handler("a", partitions=partitions)
    with pytest.raises(ValueError, match="timeout_s"):
        Handler("a", timeout_s=0)


def test_a_rejection_reason_is_truncated() -> None:
    assert len(Reject("x" * 10_000).reason) == 500
