"""Endpoint ids: any name of up to 128 bytes without control characters."""

import pytest

from milepost.model.endpoints import ENDPOINT_ID_BYTES_MAX, endpoint_id
from milepost.model.reasons import Malformed, Reason


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
