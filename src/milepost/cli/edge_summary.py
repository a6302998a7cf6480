"""Summary of an edge's settings for `milepost edge check`; files named in the settings are read as well."""

from collections.abc import Iterator
from dataclasses import fields
from enum import Enum
from pathlib import Path

from milepost.config.errors import UsageFault
from milepost.config.settings import Listener, Settings
from milepost.config.site_settings import Backbone, Site
from milepost.model.durability import Durability
from milepost.model.reasons import Malformed
from milepost.runtime.passwords import Users
from milepost.vetting.payloads import Payloads
from milepost.wire.times import instant_to_text


def outline(settings: Settings) -> str:
    """Return one line for each setting of interest, and one for each limit that is not the default."""
    return "\n".join(f"{name:<10} {what}" for name, what in _lines(settings))


def _lines(settings: Settings) -> Iterator[tuple[str, str]]:
    yield "edge", settings.edge.name
    yield "keeps", _keeping(settings)
    for listener in settings.mqtt.listen:
        yield "listens", _listening(listener)
    if settings.udp.address:
        yield "udp", _udp(settings)
    yield "covers", settings.edge.coverage or "everywhere"
    if settings.site.log.name:
        yield "site", _site(settings.site)
        yield "kinds", ", ".join(f"{kind.name} ({kind.topic})" for kind in settings.incidents.kinds)
    yield "users", _users(settings)
    yield "access", f"{_count(len(settings.access.rules), 'rule')}; what no rule is about is allowed, topics with $ apart"
    _check_schemas(settings)
    for payload in settings.rules.payload:
        must = f"JSON that obeys {payload.schema}" if payload.schema else "JSON" if payload.json else "anything"
        yield "payload", f"{payload.topic} must be {must}"
    for priority in settings.rules.priority:
        yield "priority", f"{priority.topic} is {priority.priority.name.lower()}"
    for alert in settings.rules.alert:
        yield "alert", f"{alert.topic} raises {alert.alert} for a {alert.shape.value} around it, {alert.valid_s:g} s long"
    for name, value, default in _changed_limits(settings):
        yield "limit", f"{name} = {value} (default {default})"
    yield "http", f"http://{settings.http.address}/metrics" if settings.http.address else "off"
    yield "log", f"{settings.log.level.value} and above, as {settings.log.line_format.value}"
    yield "$SYS", f"every {settings.sys.interval_s} s" if settings.sys.interval_s else "off"


def _keeping(settings: Settings) -> str:
    if settings.storage.durability is Durability.NOTHING:
        return "nothing: all is gone when the process ends"
    return f"in {settings.edge.data}, survives {settings.storage.durability.value}"


def _listening(listener: Listener) -> str:
    clients = ""
    if listener.client_ca:
        clients = f", client certificates signed by {listener.client_ca}"
    if listener.certificate_is_user:
        clients += ", their common name is the user"
    return f"{listener.address} ({listener.transport.value}{clients})"


def _udp(settings: Settings) -> str:
    from milepost.runtime.udp import read_identity  # noqa: PLC0415  # imports OpenSSL

    keys, certificate = read_identity(settings)
    if keys is None or certificate is None:
        return f"{settings.udp.address}, sealing nothing: for experiments only"
    until = instant_to_text(certificate.not_after)[:10]
    return f"{settings.udp.address}, sealed, as {certificate.id} until {until}; authority {settings.trust.authority}"


def _site(site: Site) -> str:
    log = site.log
    where = f"Kafka at {log.address}" if log.backbone is Backbone.KAFKA else f"the folder {log.folder}"
    near = f"; neighbours {', '.join(one.log.name for one in site.neighbours)}" if site.neighbours else ""
    return f"{log.name}, shared over {where}{near}"


def _users(settings: Settings) -> str:
    if not settings.access.users:
        return "everybody may connect, with any name or none"
    return f"{_count(len(Users.load(Path(settings.access.users))), 'user')} in {settings.access.users}"


def _check_schemas(settings: Settings) -> None:
    names = {payload.schema for payload in settings.rules.payload if payload.schema}
    try:
        Payloads([payload.rule for payload in settings.rules.payload], {name: Path(name).read_bytes() for name in names})
    except Malformed as fault:
        raise UsageFault(fault.detail) from None


def _changed_limits(settings: Settings) -> Iterator[tuple[str, object, object]]:
    for limits in (settings.limits.edge, settings.limits.door, settings.vetting.reports):
        default = type(limits)()
        for field in fields(limits):
            value, usual = getattr(limits, field.name), getattr(default, field.name)
            if value != usual:
                yield field.name, _shown(value), _shown(usual)


def _shown(value: object) -> object:
    return value.value if isinstance(value, Enum) else value


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
