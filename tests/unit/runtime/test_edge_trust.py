"""The trust of an edge and of the incident engine, from files: what stops the start, and which revocation list counts."""

import time
from dataclasses import replace
from pathlib import Path

import pytest

from live.udp.local_authority import LocalAuthority
from milepost.broker.broker import Broker
from milepost.broker.limits import BrokerLimits
from milepost.cli.edge_summary import summary_of
from milepost.config.errors import UsageFault
from milepost.config.settings import EdgeSettings, IncidentSettings, Settings
from milepost.config.udp_settings import TrustSettings, UdpListenerSettings
from milepost.model.endpoints import EndpointId
from milepost.model.instants import Instant
from milepost.runtime.certificate_authority import REVOKED, REVOKED_SIGNERS, revoke_in
from milepost.runtime.edge_trust import EdgeTrust, maybe_edge_trust
from milepost.runtime.incidents import find_signer
from milepost.runtime.structured_log import StructuredLog
from milepost.wire.requests import REVOCATIONS_TOPIC


class Lines:
    """A log in memory."""

    def __init__(self) -> None:
        self.text = ""
        self.log = StructuredLog(write=self._write)

    def _write(self, line: str) -> None:
        self.text += line


@pytest.fixture
def authority(tmp_path: Path) -> LocalAuthority:
    one = LocalAuthority.open(tmp_path)
    one.issue_edge("edge-1")
    return one


@pytest.fixture
def settings(tmp_path: Path, authority: LocalAuthority) -> Settings:
    issued = authority.issued
    trust = TrustSettings(
        str(authority.ca_file), str(issued / "edge-1.cert"), str(issued / "edge-1.key"), str(authority.folder / REVOKED)
    )
    return Settings(edge=EdgeSettings(data=str(tmp_path / "data")), trust=trust)


def opened(settings: Settings, lines: Lines | None = None) -> EdgeTrust:
    found = maybe_edge_trust(settings, (lines or Lines()).log)
    assert found is not None
    return found


def now() -> Instant:
    return Instant(time.time_ns())


def test_trust_needs_no_udp_listener(settings: Settings) -> None:
    assert opened(settings).maybe_signer() is not None
    assert opened(replace(settings, trust=TrustSettings(ca=settings.trust.ca))).maybe_signer() is None
    assert maybe_edge_trust(Settings(), Lines().log) is None


def test_incomplete_settings_stop_the_start(settings: Settings) -> None:
    trust = settings.trust
    for wrong, complaint in (
        (replace(trust, key=""), "certificate and key belong together"),
        (replace(trust, ca=""), "has no ca"),
        (replace(trust, certificate=trust.ca), "not a certificate"),
        (replace(trust, revoked=trust.ca), "not a revocation list"),
        (replace(trust, revoked_signers=trust.revoked), "not a list of revoked signers"),
        (replace(trust, revoked="gone"), "gone does not exist: .* copy it from the folder of the certificate authority"),
    ):
        with pytest.raises(UsageFault, match=complaint):
            maybe_edge_trust(replace(settings, trust=wrong), Lines().log)
    with pytest.raises(UsageFault, match='"noise" needs ca, certificate and key'):
        maybe_edge_trust(Settings(udp=UdpListenerSettings(address="127.0.0.1:1")), Lines().log)


def test_the_newer_of_the_configured_and_the_kept_list_counts(settings: Settings, authority: LocalAuthority) -> None:
    path = authority.folder / REVOKED
    authority.credentials("truck-17")
    older = path.read_bytes()
    assert opened(settings).authority.revoked == frozenset()
    revoke_in(authority.folder, ["truck-17"], now())
    revoked = opened(settings).authority.revoked
    assert len(revoked) == 1
    path.write_bytes(older)
    lines = Lines()
    assert opened(settings, lines).authority.revoked == revoked
    assert "is older than the last accepted one" in lines.text
    (kept,) = Path(settings.edge.data).glob("revoked-????????????????.list")
    kept.write_text("damaged")
    with pytest.raises(UsageFault, match="the last accepted revocation list, is damaged"):
        maybe_edge_trust(settings, Lines().log)


def test_a_list_that_is_not_valid_changes_nothing_and_is_logged_at_every_change(
    settings: Settings, authority: LocalAuthority
) -> None:
    lines, broker, path = Lines(), Broker(BrokerLimits(), EndpointId("edge-1")), authority.folder / REVOKED
    trust = opened(settings, lines)
    older = path.read_bytes()
    ended: list[Instant] = []

    def end(at: Instant) -> int:
        ended.append(at)
        return 1

    trust.on_revoked = end
    revoke_in(authority.folder, ["edge-1"], now())
    trust.reload(broker, now())
    assert (len(trust.authority.revoked), len(ended)) == (1, 1)
    for number, content in enumerate((b"damaged", older, b""), start=1):
        path.write_bytes(content)
        trust.reload(broker, now())
        trust.reload(broker, now())
        assert lines.text.count("the last good one stays in force") == number
    assert (len(trust.authority.revoked), len(ended)) == (1, 1)


def test_the_list_of_signers_beside_the_other_is_retained_for_clients(settings: Settings, authority: LocalAuthority) -> None:
    broker, trust = Broker(BrokerLimits(), EndpointId("edge-1")), opened(settings)
    trust.publish_revoked_signers(broker, now())
    first = broker.retained.find(REVOCATIONS_TOPIC)
    assert first is not None
    revoke_in(authority.folder, ["edge-1"], now())
    trust.reload(broker, now())
    second = broker.retained.find(REVOCATIONS_TOPIC)
    assert second is not None
    assert second.body != first.body
    (authority.folder / REVOKED_SIGNERS).unlink()
    without = replace(settings, trust=replace(settings.trust, certificate="", key=""))
    other = Broker(BrokerLimits(), EndpointId("edge-1"))
    opened(without).publish_revoked_signers(other, now())
    assert other.retained.find(REVOCATIONS_TOPIC) is None


@pytest.mark.parametrize("has_all", [True, False])
def test_an_edge_whose_own_certificate_is_revoked_does_not_start(
    settings: Settings, authority: LocalAuthority, has_all: bool
) -> None:
    if not has_all:
        signers = str(authority.folder / REVOKED_SIGNERS)
        settings = replace(settings, trust=replace(settings.trust, revoked="", revoked_signers=signers))
    summary_of(settings)
    revoke_in(authority.folder, ["edge-1"], now())
    for start in (opened, summary_of):
        with pytest.raises(
            UsageFault, match="the certificate of this edge is revoked: issue a new one with `milepost trust issue`"
        ):
            start(settings)
    (authority.issued / "edge-1.cert").unlink()
    (authority.issued / "edge-1.key").unlink()
    authority.issue_edge("edge-1")
    assert opened(settings).find_problem() is None
    assert summary_of(settings)


def test_an_edge_whose_own_certificate_becomes_revoked_stops_signing_and_is_not_ready(
    settings: Settings, authority: LocalAuthority
) -> None:
    lines, broker, stopped = Lines(), Broker(BrokerLimits(), EndpointId("edge-1")), list[bool]()
    authority.credentials("truck-17")
    trust = opened(settings, lines)
    trust.on_own_revoked = lambda: stopped.append(True)
    trust.apply_to(broker)
    revoke_in(authority.folder, ["truck-17"], now())
    trust.reload(broker, now())
    assert (trust.find_problem(), stopped) == (None, [])
    assert broker.alerts.signer is not None
    revoke_in(authority.folder, ["edge-1"], now())
    trust.reload(broker, now())
    trust.reload(broker, now())
    assert "is revoked" in str(trust.find_problem())
    assert getattr(broker.alerts, "signer", "") is None
    assert stopped == [True]
    assert lines.text.count("this edge signs nothing more and is not ready") == 1


def test_the_incident_engine_signs_with_the_certificate_of_its_service_only(
    settings: Settings, authority: LocalAuthority
) -> None:
    issued = authority.issued
    for name, role in (("incidents", "service"), ("other", "service"), ("room", "operator")):
        authority.issue_signer(name, role=role)

    def found(certificate: str, key: str, ca: str = settings.trust.ca) -> object:
        incidents = IncidentSettings(certificate=str(issued / f"{certificate}.cert"), key=str(issued / f"{key}.key"))
        return find_signer(Settings(incidents=incidents, trust=TrustSettings(ca=ca)), now())

    assert found("incidents", "incidents") is not None
    assert find_signer(Settings(), now()) is None
    for certificate, key, complaint in (
        ("other", "other", "is for 'other', role service, not for the service 'incidents'"),
        ("room", "room", "is for 'room', role operator"),
        ("incidents", "other", "is not the key of"),
        ("gone", "other", "does not exist"),
    ):
        with pytest.raises(UsageFault, match=complaint):
            found(certificate, key)
    with pytest.raises(UsageFault, match=r"needs \[trust\] ca"):
        found("incidents", "incidents", "")
    (authority.folder.parent / "elsewhere").mkdir()
    elsewhere = LocalAuthority.open(authority.folder.parent / "elsewhere")
    with pytest.raises(UsageFault, match="not signed by this certificate authority; issue a new one"):
        found("incidents", "incidents", str(elsewhere.ca_file))
    with pytest.raises(ValueError, match="certificate and key belong together"):
        IncidentSettings(certificate="a")


def test_a_list_that_cannot_be_kept_is_in_force_and_kept_later(settings: Settings, authority: LocalAuthority) -> None:
    authority.issue_edge("edge-2")
    trust, lines = opened(settings), Lines()
    trust = opened(settings, lines)
    (kept,) = (
        path for path in Path(settings.edge.data).iterdir() if path.name.startswith("revoked-") and "signers" not in path.name
    )
    kept.unlink()
    kept.mkdir()
    (kept / "in-the-way").touch()
    broker = Broker(BrokerLimits(), EndpointId("edge-1"))
    revoke_in(authority.folder, ["edge-2"], now())
    trust.reload(broker, now())
    assert len(trust.authority.revoked) == 1
    assert "not kept for the next start" in lines.text
    (kept / "in-the-way").unlink()
    kept.rmdir()
    trust.reload(broker, now())
    assert len(opened(settings).authority.revoked) == 1
    assert kept.is_file()
