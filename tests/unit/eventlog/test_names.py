import pytest

from milepost.eventlog.log import (
    RECORD_BYTES_MAX,
    Entry,
    LogRefused,
    check_entries,
    check_group_name,
    check_topic_name,
    key_bytes,
)


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 200, "...", "-"])
def test_names_of_letters_digits_and_three_signs_are_accepted(name: str) -> None:
    check_topic_name(name)
    check_group_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "a\n", "ä", "x" * 201, "a\0"])
def test_other_names_are_refused_with_the_allowed_characters(name: str) -> None:
    with pytest.raises(LogRefused, match=r"is not a valid topic name: use 1 to 200 characters of A-Z a-z 0-9 \. _ -$"):
        check_topic_name(name)
    with pytest.raises(LogRefused, match="is not a valid group name"):
        check_group_name(name)


def test_an_overlong_name_is_shown_truncated() -> None:
    with pytest.raises(LogRefused) as caught:
        check_topic_name("x" * 100_000)
    assert len(str(caught.value)) < 400


def test_the_bytes_of_keys_and_values_are_counted() -> None:
    assert check_entries([]) == 0
    assert check_entries([Entry("t", "ab", b"xyz"), Entry("t", "Ω", None), Entry("u", "", b"")]) == 7


def test_a_record_may_have_the_maximum_bytes_and_not_one_more() -> None:
    assert check_entries([Entry("t", "Ω", bytes(RECORD_BYTES_MAX - 2))]) == RECORD_BYTES_MAX
    with pytest.raises(LogRefused, match=f"a record of {RECORD_BYTES_MAX + 1} bytes for t: at most {RECORD_BYTES_MAX} fit"):
        check_entries([Entry("t", "Ω", bytes(RECORD_BYTES_MAX - 1))])


def test_a_key_is_measured_in_utf_8_and_refused_if_it_cannot_be_encoded() -> None:
    assert [key_bytes(key) for key in ("", "abc", "Ω", "語a")] == [0, 3, 2, 4]
    with pytest.raises(LogRefused, match="cannot be encoded as UTF-8"):
        key_bytes("a\udcff")
