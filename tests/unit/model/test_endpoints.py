"""Endpoint ids: any name of up to 128 bytes without control characters, but never like that of an edge or a service."""

from unicodedata import category, normalize

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from milepost.model.endpoints import (
    ENDPOINT_ID_BYTES_MAX,
    SourceKind,
    edge_source,
    endpoint_id,
    kind_of_source,
    maybe_endpoint,
    name_of_source,
    service_source,
    source_id,
)
from milepost.model.reasons import Malformed, Reason
from strategies import endpoint_ids, is_endpoint_id

LOOK_ALIKES = [
    "@edge/edge-7",
    "@service/incidents",
    "@",
    "@parking",
    " @edge/edge-7",
    "\uff20edge/edge-7",  # fullwidth @
    "\ufe6bservice/incidents",  # small @
    "\u200b@edge/edge-7",  # zero-width space
    "\u2060\ufeff\u00ad@edge/edge-7",  # word joiner, byte order mark, soft hyphen
    "\u202e@edge/edge-7",  # right-to-left override
    "\u3000\uff20edge/edge-7",  # ideographic space
    "\u0301@edge/edge-7",  # combining accent
    "\u3164@edge/edge-7",  # Hangul filler, a letter that is displayed as a blank
    "\u2800@edge/edge-7",  # Braille blank
]


@pytest.mark.parametrize("text", ["v", "vehicle 7/+#", "Kröte", "x" * ENDPOINT_ID_BYTES_MAX, "ü" * (ENDPOINT_ID_BYTES_MAX // 2)])
def test_a_name_within_the_limits_is_an_endpoint_id(text: str) -> None:
    assert endpoint_id(text) == text


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("", None),
        ("x" * (ENDPOINT_ID_BYTES_MAX + 1), None),
        ("ü" * (ENDPOINT_ID_BYTES_MAX // 2) + "x", None),
        ("a\0", 1),
        ("a\x7f", 1),
        ("\x85", 0),
        ("ab\ud800", 2),
    ],
)
def test_other_text_is_refused(text: str, at: int | None) -> None:
    with pytest.raises(Malformed) as caught:
        endpoint_id(text)
    assert (caught.value.reason, caught.value.at) == (Reason.ENDPOINT_ID, at)


@pytest.mark.parametrize("text", LOOK_ALIKES)
def test_a_name_like_that_of_an_edge_or_a_service_is_no_endpoint_id(text: str) -> None:
    with pytest.raises(Malformed) as caught:
        endpoint_id(text)
    assert caught.value.reason is Reason.ENDPOINT_ID


@pytest.mark.parametrize("text", ["edge-7", "incidents", "edge/edge-7", "truck@depot", "a@edge/edge-7"])
def test_a_plain_name_is_an_endpoint_and_equals_no_edge_or_service(text: str) -> None:
    assert kind_of_source(endpoint_id(text)) is SourceKind.ENDPOINT
    assert text not in (edge_source(text), service_source(text))


@pytest.mark.parametrize(
    "text", ["@edge/", "@service/", "@edge", "@hub/a", "@Edge/a", "@edge/@edge/a", "@edge/\u200b@a", "@edge/a\0"]
)
def test_an_incomplete_system_source_is_refused(text: str) -> None:
    with pytest.raises(Malformed) as caught:
        source_id(text)
    assert caught.value.reason is Reason.ENDPOINT_ID


visible = [chr(number) for number in range(0x20, 0x3000) if category(chr(number)) not in {"Cc", "Cs"}]
prefixes = st.text(st.sampled_from([" ", "@", "\uff20", "\ufe6b", "\u200b", "\u3164", "\u0301"]), max_size=4)


@given(prefixes, st.sampled_from(["edge/", "service/", "", "\u200bedge/"]), st.text(st.sampled_from(visible), max_size=9))
@example("\uff20", "edge/", "edge-7")
def test_no_endpoint_id_equals_a_system_source_also_not_after_normalization(prefix: str, kind: str, name: str) -> None:
    text = prefix + kind + name
    if not is_endpoint_id(text):
        return
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        shown = "".join(one for one in normalize(form, text) if category(one) not in {"Cf", "Cn", "Mn", "Me"})
        assert not shown.strip().startswith("@")
    assert source_id(text) == text
    assert maybe_endpoint(source_id(text)) == text


@given(endpoint_ids)
def test_a_system_source_has_its_kind_and_name_back(name: str) -> None:
    for make, kind in ((edge_source, SourceKind.EDGE), (service_source, SourceKind.SERVICE)):
        source = make(name)
        assert (kind_of_source(source), name_of_source(source), maybe_endpoint(source)) == (kind, name, None)
        assert source_id(source) == source
        assert not is_endpoint_id(source)
