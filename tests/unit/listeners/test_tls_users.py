"""The user that a client's certificate names, in the form of `ssl.SSLSocket.getpeercert`."""

from typing import Any

import pytest

from milepost.listeners.streams import CertificateField
from milepost.listeners.tls import USER_BYTES_MAX, user_of
from milepost.model.reasons import Reason, Refused


def certificate(*common_names: str, names: tuple[tuple[str, str], ...] = ()) -> dict[str, Any]:
    return {"subject": tuple((("commonName", one),) for one in common_names), "subjectAltName": names}


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        (CertificateField.COMMON_NAME, "ada"),
        (CertificateField.URI, "spiffe://fleet/ada"),
        (CertificateField.DNS, "ada.example"),
        (CertificateField.EMAIL, "ada@example"),
    ],
)
def test_the_chosen_field_names_the_user(field: CertificateField, expected: str) -> None:
    names = (("URI", "spiffe://fleet/ada"), ("DNS", "ada.example"), ("email", "ada@example"))
    assert user_of(certificate("ada", names=names), field) == expected


@pytest.mark.parametrize(
    ("found", "text"),
    [
        ({}, "no common name"),
        (certificate(""), "is empty"),
        (certificate("  "), "is empty"),
        (certificate("ada", "mallory"), "2 common names"),
        (certificate("ada\x00.example"), "control character"),
        (certificate("ada "), "a space at an end"),
        (certificate("é" * USER_BYTES_MAX), "more than"),
    ],
)
def test_a_certificate_that_does_not_name_one_user_is_refused(found: dict[str, Any], text: str) -> None:
    refused = user_of(found, CertificateField.COMMON_NAME)
    assert isinstance(refused, Refused)
    assert refused.reason is Reason.BAD_CREDENTIALS
    assert text in refused.detail


def test_several_alternative_names_of_the_chosen_type_are_refused() -> None:
    names = (("DNS", "a.example"), ("DNS", "b.example"), ("URI", "urn:a"))
    assert isinstance(user_of(certificate("ada", names=names), CertificateField.DNS), Refused)
    assert user_of(certificate("ada", names=names), CertificateField.URI) == "urn:a"
