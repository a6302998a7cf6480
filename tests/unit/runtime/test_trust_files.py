import stat
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from milepost.config.errors import UsageFault
from milepost.runtime.trust_files import (
    KeyFile,
    Kind,
    kind_of,
    read_authority,
    read_authority_key,
    read_certificate_file,
    read_key,
    read_public_key,
    read_revoked,
    replace_file,
    write_new,
)
from milepost.trust.certificates import revoke
from unit.trust.trusted import AUTHORITY_KEY, AUTHORITY_PUBLIC, NOW, certificate, drawn

ONE, OTHER = drawn("one"), drawn("other")


def written(folder: Path, kind: Kind, data: bytes) -> Path:
    path = folder / "file"
    path.unlink(missing_ok=True)
    write_new(path, kind, data)
    return path


def test_what_was_written_is_read_again(tmp_path: Path) -> None:
    assert read_key(written(tmp_path, Kind.KEY, ONE)) == KeyFile(ONE, b"")
    assert read_key(written(tmp_path, Kind.KEY, ONE + OTHER)) == KeyFile(ONE, OTHER)
    assert read_public_key(written(tmp_path, Kind.PUBLIC_KEY, ONE + OTHER)) == KeyFile(ONE, OTHER)
    assert read_authority(written(tmp_path, Kind.AUTHORITY, AUTHORITY_PUBLIC)) == AUTHORITY_PUBLIC
    assert read_authority_key(written(tmp_path, Kind.AUTHORITY_KEY, AUTHORITY_KEY)) == AUTHORITY_KEY
    assert read_certificate_file(written(tmp_path, Kind.CERTIFICATE, certificate().data)) == certificate()
    revoked = revoke(AUTHORITY_KEY, None, range(100), NOW)
    assert read_revoked(written(tmp_path, Kind.REVOKED, revoked.data), AUTHORITY_PUBLIC) == revoked


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(Kind), st.binary(max_size=300))
def test_any_bytes_keep_their_kind(tmp_path: Path, kind: Kind, data: bytes) -> None:
    path = written(tmp_path, kind, data)
    assert kind_of(path) is kind
    text = path.read_text()
    assert text.startswith("-----BEGIN MILEPOST ")
    assert max(map(len, text.split("\n"))) <= 64


@pytest.mark.parametrize("kind", Kind)
def test_private_keys_are_for_their_owner_everything_else_for_everybody(kind: Kind, tmp_path: Path) -> None:
    mode = 0o600 if kind in (Kind.KEY, Kind.AUTHORITY_KEY) else 0o644
    path = written(tmp_path, kind, ONE)
    assert stat.S_IMODE(path.stat().st_mode) == mode
    replace_file(path, kind, OTHER)
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_nothing_is_written_over_unless_it_is_meant_and_nothing_is_left_beside(tmp_path: Path) -> None:
    path = written(tmp_path, Kind.KEY, ONE)
    with pytest.raises(UsageFault, match="is there already: move it away"):
        write_new(path, Kind.KEY, OTHER)
    assert read_key(path).static == ONE
    replace_file(path, Kind.KEY, OTHER)
    assert read_key(path).static == OTHER
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


def test_what_cannot_be_written_is_a_fault_and_leaves_nothing(tmp_path: Path) -> None:
    for write in (write_new, replace_file):
        with pytest.raises(UsageFault, match="cannot be written: No such file or directory"):
            write(tmp_path / "nowhere" / "file", Kind.KEY, ONE)
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(UsageFault, match="cannot be written"):
        replace_file(folder, Kind.KEY, ONE)
    assert [one.name for one in tmp_path.iterdir()] == ["folder"]


def test_a_file_of_another_kind_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, Kind.CERTIFICATE, certificate().data)
    with pytest.raises(UsageFault, match="file holds a certificate, not a private key: correct the name"):
        read_key(path)
    with pytest.raises(UsageFault, match="not the public key of an authority"):
        read_authority(path)


KEY_TEXT = "A" * 43 + "="
BEGIN, END = "-----BEGIN MILEPOST PRIVATE KEY-----\n", "-----END MILEPOST PRIVATE KEY-----\n"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "holds no key, certificate or list"),
        (f"PRIVATE KEY\n{KEY_TEXT}\n{END}", "holds no key"),
        (f"{BEGIN}{KEY_TEXT}\n", "is cut off or spoilt"),
        (f"{BEGIN}{KEY_TEXT}\n-----END MILEPOST CERTIFICATE-----\n", "is cut off or spoilt"),
        (f"{BEGIN}!{KEY_TEXT}\n{END}", "is cut off or spoilt"),
        (f"{BEGIN}{KEY_TEXT[4:]}\n{END}", "is cut off or spoilt"),
    ],
)
def test_a_spoilt_file_is_a_fault_that_says_what_to_do(text: str, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text(text)
    with pytest.raises(UsageFault) as caught:
        read_key(path)
    assert read_key(written(tmp_path, Kind.KEY, bytes(32))).static == bytes(32)
    assert (tmp_path / "file").read_text() == f"{BEGIN}{KEY_TEXT}\n{END}"
    assert complaint in str(caught.value)


def test_line_ends_and_spaces_of_others_are_passed_over(tmp_path: Path) -> None:
    path = written(tmp_path, Kind.KEY, ONE)
    path.write_bytes(b"\r\n" + path.read_bytes().replace(b"\n", b" \r\n"))
    assert read_key(path).static == ONE


def test_keys_certificates_and_lists_of_the_wrong_sort_are_faults(tmp_path: Path) -> None:
    with pytest.raises(UsageFault, match="spoilt"):
        read_authority(written(tmp_path, Kind.AUTHORITY, ONE + OTHER))
    with pytest.raises(UsageFault, match="holds no certificate"):
        read_certificate_file(written(tmp_path, Kind.CERTIFICATE, b"none"))
    with pytest.raises(UsageFault, match="is not signed by this authority"):
        read_revoked(written(tmp_path, Kind.REVOKED, revoke(ONE, None, [], NOW).data), AUTHORITY_PUBLIC)
    with pytest.raises(UsageFault, match="is not there: correct the name"):
        read_key(tmp_path / "none")
