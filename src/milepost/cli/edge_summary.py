"""Summary of an edge's settings for `milepost edge check`; files named in the settings are read as well."""

from collections.abc import Iterator
from dataclasses import fields
from enum import Enum
from pathlib import Path

from milepost.config.errors import UsageFault
from milepost.config.settings import ListenerSettings, Settings
from milepost.config.site_settings import LogType, SiteSettings
from milepost.config.udp_settings import Encryption
from milepost.listeners.streams import CertificateField
from milepost.model.durability import Durability
from milepost.model.reasons import Malformed
from milepost.runtime.passwords import Users
from milepost.vetting.payloads import PayloadChecks
from milepost.wire.times import instant_to_text


def summary_of(settings: Settings) -> str:
    """Return one line for each setting of interest, and one for each limit that is not the default."""
    return "\n".join(f"{name:<10} {what}" for name, what in _lines(settings))


def _lines(settings: Settings) -> Iterator[tuple[str, str]]:
    yield "edge", settings.edge.name
    yield "storage", _storage(settings)
    for listener in settings.mqtt.listen:
        yield "mqtt", _listener(listener)
    if settings.udp.address:
        yield "udp", _udp(settings)
    _check_trust(settings)
    yield "coverage", settings.edge.coverage or "everywhere"
    if settings.site.log.name:
        yield "site", _site(settings.site)
        yield "kinds", ", ".join(f"{kind.name} ({kind.topic})" for kind in settings.incidents.kinds)
    yield "users", _users(settings)
    yield "access", f"{_count(len(settings.access.rules), 'rule')}; without a rule see docs/reference/access.md"
    _check_schemas(settings)
    for payload in settings.rules.payload:
        json = f"must be JSON valid under {payload.schema}" if payload.schema else "must be JSON"
        yield "payload", f"{payload.topic} {json if payload.schema or payload.json else 'may be anything'}"
    for priority in settings.rules.priority:
        yield "priority", f"{priority.topic} has priority {priority.priority.name.lower()}"
    for alert in settings.rules.alert:
        yield (
            "alert",
            f"{alert.topic} raises {alert.alert} in a {alert.shape.value} around its place, valid for {alert.valid_s:g} s",
        )
    for name, value, default in _changed_limits(settings):
        yield "limit", f"{name} = {value} (default {default})"
    yield "http", f"http://{settings.http.address}/metrics" if settings.http.address else "off"
    yield "log", f"{settings.log.level.value} and above, as {settings.log.line_format.value}"
    yield "$SYS", f"every {settings.sys.interval_s} s" if settings.sys.interval_s else "off"


def _storage(settings: Settings) -> str:
    if settings.storage.durability is Durability.NONE:
        return "none: all state is lost when the process ends"
    return f"{settings.edge.data}, durable against {settings.storage.durability.value}"


def _listener(listener: ListenerSettings) -> str:
    clients = ""
    if listener.client_ca:
        clients = f", client certificates signed by {listener.client_ca}"
    if listener.certificate_is_user:
        name = "common name" if listener.user_from is CertificateField.COMMON_NAME else f"{listener.user_from.value} name"
        clients += f", whose {name} is the user name"
    return f"{listener.address} ({listener.transport.value}{clients})"


def _check_trust(settings: Settings) -> None:
    """Read the revocation lists: the certificate of the edge must be on none."""
    if settings.trust.ca:
        from milepost.runtime.edge_trust import check_not_revoked  # noqa: PLC0415  # imports OpenSSL

        check_not_revoked(settings)


def _udp(settings: Settings) -> str:
    from milepost.runtime.edge_trust import read_identity  # noqa: PLC0415  # imports OpenSSL

    _, certificate = read_identity(settings)
    if certificate is None or settings.udp.encryption is Encryption.NONE:
        return f"{settings.udp.address}, not encrypted: for experiments only"
    until = instant_to_text(certificate.not_after)[:10]
    return f"{settings.udp.address}, encrypted, certificate of {certificate.id} until {until}, ca {settings.trust.ca}"


def _site(site: SiteSettings) -> str:
    log = site.log
    where = f"Kafka at {log.address}" if log.log_type is LogType.KAFKA else f"the folder {log.folder}"
    near = f"; neighbours {', '.join(one.log.name for one in site.neighbours)}" if site.neighbours else ""
    return f"{log.name}, log: {where}{near}"


def _users(settings: Settings) -> str:
    if not settings.access.users:
        return "none: every client may connect"
    others = "; clients without a user name are admitted" if settings.access.anonymous else ""
    return f"{_count(len(Users.load(Path(settings.access.users))), 'user')} in {settings.access.users}{others}"


def _check_schemas(settings: Settings) -> None:
    names = {payload.schema for payload in settings.rules.payload if payload.schema}
    try:
        PayloadChecks([payload.rule for payload in settings.rules.payload], {name: Path(name).read_bytes() for name in names})
    except Malformed as fault:
        raise UsageFault(fault.detail) from None


def _changed_limits(settings: Settings) -> Iterator[tuple[str, object, object]]:
    for limits in (settings.limits.broker, settings.limits.mqtt, settings.vetting.reports):
        default = type(limits)()
        for field in fields(limits):
            value, usual = getattr(limits, field.name), getattr(default, field.name)
            if value != usual:
                yield field.name, _shown(value), _shown(usual)


def _shown(value: object) -> object:
    return value.value if isinstance(value, Enum) else value


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
