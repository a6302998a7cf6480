"""`milepost trust`, run inside this process, on a folder."""

import json
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from milepost.cli import main as command
from milepost.cli.certificate_table import shown_files
from milepost.config.errors import UsageFault
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.reasons import Malformed
from milepost.runtime.certificate_authority import CLOCK_SLACK_NS, issued_in, revoked_in, serial_text
from milepost.runtime.trust_files import read_authority, read_certificate_file, read_key, read_public_key, read_revoked
from milepost.trust.certificates import CertificateAuthority, RevocationScope, read_revocations
from milepost.trust.noise import public_of
from milepost.trust.signing import Signer, signing_public_of

Run = Callable[..., str]
DAY_NS = 86_400 * SECOND_NS


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run `milepost trust ...` in a folder of its own; return its output."""
    monkeypatch.chdir(tmp_path)

    def typed(*arguments: str, status: int = 0) -> str:
        assert command.main(["trust", *arguments]) == status
        output = capsys.readouterr()
        assert (output.err == "") is (status == 0)
        return output.out + output.err

    return typed


@pytest.fixture
def ca(run: Run) -> Path:
    run("init", "ca")
    return Path("ca")


def names(folder: Path = Path()) -> set[str]:
    return {path.name for path in folder.iterdir() if path.is_file()}


@pytest.mark.parametrize("verb", [(), ("init",), ("key",), ("issue",), ("revoke",), ("show",)])
def test_help_has_examples(verb: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["trust", *verb, "--help"])
    text = capsys.readouterr().out
    assert text.startswith(f"usage: {' '.join(('milepost', 'trust', *verb))}")
    assert "  milepost trust" in text


def test_an_authority_is_created_once(run: Run, ca: Path) -> None:
    assert names(ca) == {"authority.key", "authority.pub", "revoked.list", "revoked-signers.list", "issued.jsonl"}
    assert stat.S_IMODE((ca / "authority.key").stat().st_mode) == 0o600
    assert revoked_in(ca).serials == frozenset()
    before = {name: (ca / name).read_bytes() for name in names(ca)}
    assert "has authority.key already: nothing was changed" in run("init", "ca", status=2)
    assert {name: (ca / name).read_bytes() for name in names(ca)} == before


@pytest.mark.parametrize("name", ["authority.pub", "revoked.list", "revoked-signers.list", "issued.jsonl"])
def test_an_authority_does_not_overwrite_files_of_another(run: Run, name: str) -> None:
    Path("ca").mkdir()
    (Path("ca") / name).write_text("mine")
    assert f"has {name} already" in run("init", "ca", status=2)
    assert names(Path("ca")) == {name}


def test_keys_are_random(run: Run, ca: Path) -> None:
    run("init", "cb")
    run("key", "a")
    run("key", "b", "--edge")
    assert read_authority(ca / "authority.pub") != read_authority(Path("cb/authority.pub"))
    one, other = read_key(Path("a.key")), read_key(Path("b.key"))
    assert len({one.static, other.static, other.signing}) == 3


def test_an_issued_certificate_matches_its_key_and_is_valid(run: Run, ca: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time_ns", lambda: 10**18 + 5)
    output = run("issue", "ca", "truck-17", "--role", "vehicle", "--days", "2")
    certificate, keys = read_certificate_file(Path("truck-17.cert")), read_key(Path("truck-17.key"))
    assert (certificate.id, certificate.role, certificate.signing_key) == ("truck-17", "vehicle", b"")
    assert (certificate.key, keys.signing) == (public_of(keys.static), b"")
    assert (certificate.not_before, certificate.not_after) == (10**18 - CLOCK_SLACK_NS, 10**18 + 2 * DAY_NS)
    assert serial_text(certificate.serial) in output
    assert CertificateAuthority(read_authority(ca / "authority.pub")).check(certificate, Instant(10**18)) is None
    assert list(issued_in(ca)) == [certificate]


def test_the_register_is_readable_json_lines(run: Run, ca: Path) -> None:
    run("issue", "ca", "Ünal/1", "--role", "vehicle")
    run("issue", "ca", "edge-3", "--edge")
    first, second = map(json.loads, (ca / "issued.jsonl").read_text().splitlines())
    assert (first["id"], first["role"], second["id"], second["role"]) == ("Ünal/1", "vehicle", "edge-3", "edge")
    assert len(first["serial"]) == 16
    assert first["serial"] != second["serial"]
    assert first["not_after"].endswith("Z")
    assert "Ünal%2F1.cert" in names()


@pytest.mark.parametrize("role", [("--edge",), ("--role", "edge")])
def test_an_edge_gets_a_signing_key(run: Run, ca: Path, role: tuple[str, ...]) -> None:
    run("issue", str(ca), "edge-3", *role)
    keys, certificate = read_key(Path("edge-3.key")), read_certificate_file(Path("edge-3.cert"))
    assert (certificate.role, certificate.signing_key) == ("edge", signing_public_of(keys.signing))
    Signer(keys.signing, certificate)


def test_a_certificate_can_be_issued_for_a_public_key(run: Run, ca: Path) -> None:
    run("key", "edge-3", "--edge", "--out", str(ca))
    run("issue", "ca", "edge-3", "--edge", "--key", "ca/edge-3.pub")
    assert names() == {"edge-3.cert"}
    keys, certificate = read_key(ca / "edge-3.key"), read_certificate_file(Path("edge-3.cert"))
    assert (certificate.key, certificate.signing_key) == read_public_key(ca / "edge-3.pub")
    assert (certificate.key, certificate.signing_key) == (public_of(keys.static), signing_public_of(keys.signing))


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("issue", "ca", "x", "--role", "Truck"), "no certificate was issued for 'x': the role is 'Truck'"),
        (("issue", "ca", "x", "--role", "truck", "--days", "0"), "--days 0: give at least 1"),
        (("issue", "ca", "x", "--role", "truck", "--days", "99999999"), "not_after"),
        (("issue", "ca", "", "--role", "truck"), "'' is not a valid endpoint id"),
        (("issue", "nowhere", "x", "--role", "truck"), "nowhere/authority.key does not exist"),
        (("issue", "ca", "x", "--role", "truck", "--out", "nowhere"), "nowhere is not a folder"),
        (("issue", "ca", "x", "--role", "truck", "--key", "both.pub"), "has a signing key, which only signers have"),
        (("issue", "ca", "x", "--edge", "--key", "one.pub"), "has no signing key: create it with --edge"),
        (("issue", "ca", "x", "--role", "truck", "--key", "one.key"), "has a private key, not a public key"),
        (("issue", "ca", "one", "--role", "truck"), "one.key exists already: nothing was issued"),
        (("key", "one"), "one.key exists already"),
        (("key", "a\nb"), "is not a valid endpoint id"),
        (("revoke", "ca", "nobody"), "'nobody' has no certificate in ca/issued.jsonl, nor is it a serial number"),
        (("revoke", "ca", "0123456789abcdeg"), "nor is it a serial number"),
        (("revoke", "nowhere", "x"), "nowhere does not exist"),
        (("show", "nothing"), "nothing does not exist"),
    ],
)
def test_a_failed_command_prints_one_line_and_changes_nothing(
    run: Run, ca: Path, arguments: tuple[str, ...], complaint: str
) -> None:
    run("key", "one")
    run("key", "both", "--edge")
    before = names() | names(ca)
    output = run(*arguments, status=2)
    assert complaint in output
    assert output.count("\n") == 1
    assert names() | names(ca) == before
    assert (ca / "issued.jsonl").read_text() == ""
    assert revoked_in(ca).serials == frozenset()


def test_revoking_a_name_revokes_all_its_certificates_and_no_others(run: Run, ca: Path) -> None:
    for folder in ("first", "second"):
        Path(folder).mkdir()
        run("issue", "ca", "truck-17", "--role", "vehicle", "--out", folder)
    run("issue", "ca", "truck-18", "--role", "vehicle")
    output = run("revoke", "ca", "truck-17")
    serials = {read_certificate_file(Path(folder, "truck-17.cert")).serial for folder in ("first", "second")}
    assert revoked_in(ca).serials == serials
    assert all(f"{serial_text(serial)} is revoked" in output for serial in serials)
    assert "apply them within a second" in output
    assert stat.S_IMODE((ca / "revoked.list").stat().st_mode) == 0o644


def test_clients_get_the_revoked_certificates_that_can_sign(run: Run, ca: Path) -> None:
    for name, role in (("edge-3", "--edge"), ("incidents", "--service"), ("control-room", "--operator")):
        run("issue", "ca", name, role)
        assert read_certificate_file(Path(f"{name}.cert")).signing_key
    run("issue", "ca", "truck-17", "--role", "vehicle")
    run("revoke", "ca", "truck-17", "edge-3")
    run("revoke", "ca", "incidents", "00000000000000ff")
    signing = {read_certificate_file(Path(f"{name}.cert")).serial for name in ("edge-3", "incidents")}
    public = read_authority(ca / "authority.pub")
    signers = read_revoked(ca / "revoked-signers.list", public, RevocationScope.SIGNERS)
    assert signers.serials == signing | {0xFF}, "one whose role is unknown counts as a signer"
    with pytest.raises(UsageFault, match="has a list of revoked signers, not a revocation list"):
        read_revoked(ca / "revoked-signers.list", public)
    with pytest.raises(Malformed, match="not signed by this certificate authority"):
        read_revocations(signers.data, public)


def test_a_serial_number_missing_in_the_register_can_be_revoked(run: Run, ca: Path) -> None:
    run("revoke", "ca", "00000000000000ff", "00000000000000fe")
    run("revoke", "ca", "00000000000000fd")
    assert revoked_in(ca).serials == {0xFD, 0xFE, 0xFF}


def test_a_name_that_looks_like_a_serial_number_is_taken_as_a_name(run: Run, ca: Path) -> None:
    run("issue", "ca", "00000000000000ff", "--role", "vehicle")
    run("revoke", "ca", "00000000000000ff")
    assert revoked_in(ca).serials == {read_certificate_file(Path("00000000000000ff.cert")).serial}


def test_revoking_again_writes_no_new_list(run: Run, ca: Path) -> None:
    run("issue", "ca", "truck-17", "--role", "vehicle")
    run("revoke", "ca", "truck-17")
    before = (ca / "revoked.list").read_bytes()
    assert "all of these were revoked before" in run("revoke", "ca", "truck-17")
    assert (ca / "revoked.list").read_bytes() == before


def test_an_unknown_name_among_others_revokes_nothing(run: Run, ca: Path) -> None:
    run("issue", "ca", "truck-17", "--role", "vehicle")
    run("revoke", "ca", "truck-17", "truck-71", status=2)
    assert revoked_in(ca).serials == frozenset()


def test_a_folder_is_shown_with_the_state_of_each_certificate(run: Run, ca: Path) -> None:
    run("issue", "ca", "truck-17", "--role", "vehicle", "--days", "1")
    run("issue", "ca", "edge-3", "--edge", "--days", "9")
    run("revoke", "ca", "edge-3")
    (truck, edge) = issued_in(ca)

    def states(now: int) -> list[str]:
        lines = shown_files([ca], Instant(now)).split("\n")
        assert lines[0] == f"ca/authority.pub: the CA {read_authority(ca / 'authority.pub').hex()}"
        assert lines[1].startswith("ca/revoked.list: 1 revoked, signed at 20")
        assert lines[2].split() == ["id", "role", "serial", "valid", "from", "valid", "until", "state"]
        assert lines[3].startswith(f"truck-17  vehicle  {serial_text(truck.serial)}  20")
        assert lines[4].startswith(f"edge-3    edge     {serial_text(edge.serial)}  20")
        return [line.split("Z  ")[-1] for line in lines[3:]]

    assert states(truck.not_before - 1) == ["not yet valid", "not yet valid"]
    assert states(truck.not_before + 2 * SECOND_NS) == ["valid", "revoked"]
    assert states(truck.not_after + 1) == ["expired", "revoked"]


def test_files_are_shown_without_their_secrets(run: Run, ca: Path) -> None:
    run("issue", "ca", "edge-3", "--edge")
    run("key", "truck-17")
    output = run("show", "edge-3.cert", "edge-3.key", "truck-17.pub", "ca/authority.key", "ca/revoked.list")
    keys, certificate = read_key(Path("edge-3.key")), read_certificate_file(Path("edge-3.cert"))
    assert (
        f"edge-3.key: a private key, of the public key {certificate.key.hex()}, signing {certificate.signing_key.hex()}" in output
    )
    assert f"truck-17.pub: a public key, {read_public_key(Path('truck-17.pub')).static.hex()}\n" in output
    assert f"private key of the CA {read_authority(ca / 'authority.pub').hex()}" in output
    assert "ca/revoked.list: 0 revoked" in output
    assert "not verified: no authority.pub in its folder" in output
    assert not any(secret.hex() in output for secret in keys)


def test_a_certificate_is_verified_with_the_authority_in_its_folder(run: Run, ca: Path) -> None:
    run("init", "cb")
    run("issue", "ca", "truck-17", "--role", "vehicle", "--out", "ca")
    run("issue", "ca", "truck-17", "--role", "vehicle", "--out", "cb")
    output = run("show", "ca/truck-17.cert", "cb/truck-17.cert").splitlines()
    assert [line.split("Z  ")[-1] for line in output[1:]] == ["valid", "of another CA"]


def test_a_damaged_line_of_the_register_is_reported_with_its_number(run: Run, ca: Path) -> None:
    run("issue", "ca", "truck-17", "--role", "vehicle")
    with (ca / "issued.jsonl").open("a") as register:
        register.write('{"id": "x"}\n')
    assert "ca/issued.jsonl, line 2 cannot be decoded" in run("show", "ca", status=2)
