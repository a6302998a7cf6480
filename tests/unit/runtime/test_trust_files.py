import stat
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from milepost.config.errors import UsageFault
from milepost.runtime.trust_files import (
    KeyFile,
    TrustFileType,
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
from unit.trust.sample_certificates import AUTHORITY_PUBLIC, CA_KEY, NOW, certificate, key_of

ONE, OTHER = key_of("one"), key_of("other")


def written(folder: Path, kind: TrustFileType, data: bytes) -> Path:
    path = folder / "file"
    path.unlink(missing_ok=True)
    write_new(path, kind, data)
    return path


def test_written_files_are_read_back(tmp_path: Path) -> None:
    assert read_key(written(tmp_path, TrustFileType.KEY, ONE)) == KeyFile(ONE, b"")
    assert read_key(written(tmp_path, TrustFileType.KEY, ONE + OTHER)) == KeyFile(ONE, OTHER)
    assert read_public_key(written(tmp_path, TrustFileType.PUBLIC_KEY, ONE + OTHER)) == KeyFile(ONE, OTHER)
    assert read_authority(written(tmp_path, TrustFileType.AUTHORITY, AUTHORITY_PUBLIC)) == AUTHORITY_PUBLIC
    assert read_authority_key(written(tmp_path, TrustFileType.AUTHORITY_KEY, CA_KEY)) == CA_KEY
    assert read_certificate_file(written(tmp_path, TrustFileType.CERTIFICATE, certificate().data)) == certificate()
    revoked = revoke(CA_KEY, None, range(100), NOW)
    assert read_revoked(written(tmp_path, TrustFileType.REVOKED, revoked.data), AUTHORITY_PUBLIC) == revoked


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(TrustFileType), st.binary(max_size=300))
def test_any_content_round_trips_with_its_type(tmp_path: Path, kind: TrustFileType, data: bytes) -> None:
    path = written(tmp_path, kind, data)
    assert kind_of(path) is kind
    text = path.read_text()
    assert text.startswith("-----BEGIN MILEPOST ")
    assert max(map(len, text.split("\n"))) <= 64


@pytest.mark.parametrize("kind", TrustFileType)
def test_private_keys_are_readable_by_their_owner_only(kind: TrustFileType, tmp_path: Path) -> None:
    mode = 0o600 if kind in (TrustFileType.KEY, TrustFileType.AUTHORITY_KEY, TrustFileType.SITE_KEY) else 0o644
    path = written(tmp_path, kind, ONE)
    assert stat.S_IMODE(path.stat().st_mode) == mode
    replace_file(path, kind, OTHER)
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_files_are_overwritten_only_by_replace_and_leave_no_temporary_file(tmp_path: Path) -> None:
    path = written(tmp_path, TrustFileType.KEY, ONE)
    with pytest.raises(UsageFault, match="exists already: move it away"):
        write_new(path, TrustFileType.KEY, OTHER)
    assert read_key(path).static == ONE
    replace_file(path, TrustFileType.KEY, OTHER)
    assert read_key(path).static == OTHER
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


def test_a_failed_write_is_reported_and_leaves_nothing(tmp_path: Path) -> None:
    for write in (write_new, replace_file):
        with pytest.raises(UsageFault, match="cannot be written: No such file or directory"):
            write(tmp_path / "nowhere" / "file", TrustFileType.KEY, ONE)
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(UsageFault, match="cannot be written"):
        replace_file(folder, TrustFileType.KEY, ONE)
    assert [one.name for one in tmp_path.iterdir()] == ["folder"]


def test_a_file_of_another_type_is_reported(tmp_path: Path) -> None:
    path = written(tmp_path, TrustFileType.CERTIFICATE, certificate().data)
    with pytest.raises(UsageFault, match="file has a certificate, not a private key: correct the path"):
        read_key(path)
    with pytest.raises(UsageFault, match="not the public key of a certificate authority"):
        read_authority(path)


KEY_TEXT = "A" * 43 + "="
BEGIN, END = "-----BEGIN MILEPOST PRIVATE KEY-----\n", "-----END MILEPOST PRIVATE KEY-----\n"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "is not a file of `milepost trust`"),
        (f"PRIVATE KEY\n{KEY_TEXT}\n{END}", "is not a file of `milepost trust`"),
        (f"{BEGIN}{KEY_TEXT}\n", "is truncated or damaged"),
        (f"{BEGIN}{KEY_TEXT}\n-----END MILEPOST CERTIFICATE-----\n", "is truncated or damaged"),
        (f"{BEGIN}!{KEY_TEXT}\n{END}", "is truncated or damaged"),
        (f"{BEGIN}{KEY_TEXT[4:]}\n{END}", "is truncated or damaged"),
    ],
)
def test_a_damaged_file_is_reported_with_advice(text: str, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text(text)
    with pytest.raises(UsageFault) as caught:
        read_key(path)
    assert read_key(written(tmp_path, TrustFileType.KEY, bytes(32))).static == bytes(32)
    assert (tmp_path / "file").read_text() == f"{BEGIN}{KEY_TEXT}\n{END}"
    assert complaint in str(caught.value)


def test_crlf_and_surrounding_space_are_ignored(tmp_path: Path) -> None:
    path = written(tmp_path, TrustFileType.KEY, ONE)
    path.write_bytes(b"\r\n" + path.read_bytes().replace(b"\n", b" \r\n"))
    assert read_key(path).static == ONE


def test_invalid_keys_certificates_and_lists_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageFault, match="damaged"):
        read_authority(written(tmp_path, TrustFileType.AUTHORITY, ONE + OTHER))
    with pytest.raises(UsageFault, match="has no valid certificate"):
        read_certificate_file(written(tmp_path, TrustFileType.CERTIFICATE, b"none"))
    with pytest.raises(UsageFault, match="is not signed by this certificate authority"):
        read_revoked(written(tmp_path, TrustFileType.REVOKED, revoke(ONE, None, [], NOW).data), AUTHORITY_PUBLIC)
    with pytest.raises(UsageFault, match="does not exist: correct the path"):
        read_key(tmp_path / "none")
