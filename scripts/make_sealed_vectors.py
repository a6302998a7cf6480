"""Write the test vectors of sealed sessions, for clients in any language: `python scripts/make_sealed_vectors.py`.

`tests/vectors/sealed.json` has fixed keys; certificates; the handshake step by step, with each hash and key; a whole datagram of
each kind, with what went into it; a signed message; and datagrams that are refused, and why. All bytes are in hex. A client that
agrees with all of it can talk sealed to an edge, as `docs/reference/wire.md` says.
"""

import hmac
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Final

import orjson
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from milepost.model.addresses import ToArea
from milepost.model.areas import Circle
from milepost.model.endpoints import EndpointId, edge_source
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.messages import Message, MessageId
from milepost.model.places import Place
from milepost.model.priorities import Priority
from milepost.model.reasons import Reason
from milepost.model.reports import Report
from milepost.model.session_datagrams import AcknowledgeDatagram, Heartbeat, Init, PublishDatagram, ReportSent, SessionToken
from milepost.trust.certificates import EDGE, Certificate, body_and_signature, issue, revoke
from milepost.trust.cookies import Macs, cookie_of, reset_key, reset_of, seal_cookie
from milepost.trust.noise import PROLOGUE, PROTOCOL, NoiseInitiator, NoiseResponder, public_of
from milepost.trust.signing import Signer, signing_public_of
from milepost.wire.datagrams import encode, signed_bytes
from milepost.wire.sealed import (
    DATA_HEAD_BYTES,
    KEY_BYTES,
    MACS_BYTES,
    TAG_BYTES,
    DiscoveryRequest,
    Hello,
    SealedType,
    data_head,
    discovery_request_to_bytes,
    hello_to_bytes,
    nonce_of,
    reset_datagram,
    unsigned_discovery_reply,
)

VECTORS: Final = Path(__file__).resolve().parent.parent / "tests" / "vectors" / "sealed.json"

NOW: Final = Instant(1_893_499_200 * SECOND_NS)  # 2030-01-01T12:00:00Z
DAY_NS: Final = 86_400 * SECOND_NS
TOKEN: Final = SessionToken(0x1122334455667788)
TRUCK: Final = EndpointId("truck-7")
THE_EDGE: Final = EndpointId("edge-3")
REVOKED: Final = 66
ADDRESS: Final = bytes.fromhex("c0000207d431")
"""192.0.2.7, port 54321; how an edge writes an address is its own affair."""


def drawn(name: str, size: int = 32) -> bytes:
    """A key that is the same each time: the SHA-256 of its name."""
    return sha256(name.encode()).digest()[:size]


STATIC: Final = ("edge static", "edge ephemeral", "truck static", "truck ephemeral")
SIGNING: Final = ("authority", "another authority", "edge signing")
SECRETS: Final = {name: drawn(name) for name in (*STATIC, *SIGNING, "cookie secret")}
EDGE_KEY: Final = public_of(SECRETS["edge static"])
TRUCK_KEY: Final = public_of(SECRETS["truck static"])
RESET_KEY: Final = reset_key(SECRETS["edge static"])
RESET: Final = reset_of(RESET_KEY, TOKEN)
REPORT: Final = Report(TRUCK, Place(40.7608, -111.891), NOW, 90.0, 25.0)
LATER: Final = replace(REPORT, seen_at=Instant(NOW + SECOND_NS))


def truck_certificate(
    *, authority: str = "authority", key: bytes = TRUCK_KEY, serial: int = 7, begins: int = NOW - DAY_NS, ends: int = NOW + DAY_NS
) -> Certificate:
    return issue(
        SECRETS[authority],
        id=TRUCK,
        role="vehicle",
        key=key,
        not_before=Instant(begins),
        not_after=Instant(ends),
        serial=serial,
    )


def edge_certificate() -> Certificate:
    return issue(
        SECRETS["authority"],
        id=THE_EDGE,
        role=EDGE,
        key=EDGE_KEY,
        not_before=Instant(NOW - DAY_NS),
        not_after=Instant(NOW + DAY_NS),
        serial=3,
        signing_key=signing_public_of(SECRETS["edge signing"]),
    )


def hello(*, certificate: Certificate | None = None, sent_at: int = NOW) -> bytes:
    """What the truck says inside message 1."""
    return hello_to_bytes(Hello(Instant(sent_at), (certificate or truck_certificate()).data, encode(Init(REPORT))))


def acknowledge() -> bytes:
    """What the edge says inside message 2."""
    return encode(AcknowledgeDatagram(TOKEN, SECOND_NS, THE_EDGE, reset=RESET, keys_ns=3_600 * SECOND_NS))


def init(
    payload: bytes, *, responder_key: bytes = EDGE_KEY, cookie: bytes = b"", ephemeral: bytes = SECRETS["truck ephemeral"]
) -> bytes:
    """A whole INIT."""
    initiator = NoiseInitiator(SECRETS["truck static"], responder_key, ephemeral)
    data = bytes([SealedType.INIT]) + initiator.write(payload)
    return data + Macs(EDGE_KEY).stamp(data, cookie)


class Trace:
    """The handshake's state as the Noise specification has it, noted after each step."""

    def __init__(self) -> None:
        self.h = self.ck = PROTOCOL.ljust(32, b"\0")
        self.k = b""
        self.steps: list[dict[str, str]] = [{"step": "protocol name", "h": self.h.hex(), "ck": self.ck.hex()}]

    def mix_hash(self, step: str, data: bytes) -> None:
        self.h = sha256(self.h + data).digest()
        self.steps.append({"step": step, "mix_hash": data.hex(), "h": self.h.hex()})

    def mix_key(self, step: str, private: bytes, public: bytes) -> None:
        shared = X25519PrivateKey.from_private_bytes(private).exchange(X25519PublicKey.from_public_bytes(public))
        self.ck, self.k = self.derived(shared)
        self.steps.append({"step": step, "shared_secret": shared.hex(), "ck": self.ck.hex(), "k": self.k.hex()})

    def seal(self, step: str, plain: bytes) -> bytes:
        sealed = AESGCM(self.k).encrypt(bytes(12), plain, self.h)
        said = {"plain": plain.hex(), "associated_data": self.h.hex(), "sealed": sealed.hex()}
        self.steps.append({"step": f"{step}, sealed", **said})
        self.mix_hash(step, sealed)
        return sealed

    def derived(self, secret: bytes) -> tuple[bytes, bytes]:
        extracted = hmac.digest(self.ck, secret, "sha256")
        first = hmac.digest(extracted, b"\x01", "sha256")
        return first, hmac.digest(extracted, first + b"\x02", "sha256")


def handshake() -> dict[str, object]:
    """Both messages and the keys, and how they come about."""
    static, ephemeral, edge_ephemeral = (SECRETS[name] for name in ("truck static", "truck ephemeral", "edge ephemeral"))
    trace = Trace()
    trace.mix_hash("prologue", PROLOGUE)
    trace.mix_hash("responder's static key", EDGE_KEY)
    trace.mix_hash("message 1: e", public_of(ephemeral))
    trace.mix_key("message 1: es", ephemeral, EDGE_KEY)
    sealed_key = trace.seal("message 1: s", TRUCK_KEY)
    trace.mix_key("message 1: ss", static, EDGE_KEY)
    first = public_of(ephemeral) + sealed_key + trace.seal("message 1: payload", hello())
    trace.mix_hash("message 2: e", public_of(edge_ephemeral))
    trace.mix_key("message 2: ee", edge_ephemeral, public_of(ephemeral))
    trace.mix_key("message 2: se", edge_ephemeral, TRUCK_KEY)
    second = public_of(edge_ephemeral) + trace.seal("message 2: payload", acknowledge())
    k1, k2 = trace.derived(b"")
    return {
        "protocol": PROTOCOL.decode(),
        "prologue": PROLOGUE.hex(),
        "steps": trace.steps,
        "message_1": first.hex(),
        "message_2": second.hex(),
        "handshake_hash": trace.h.hex(),
        "chaining_key": trace.ck.hex(),
        "k1_endpoint_to_edge": k1.hex(),
        "k2_edge_to_endpoint": k2.hex(),
    }


def session_keys() -> tuple[bytes, bytes]:
    """What the edge receives with and what it sends with."""
    responder = NoiseResponder(SECRETS["edge static"])
    heard = responder.read(init(hello())[1:-MACS_BYTES])
    _, keys = responder.answer(heard, SECRETS["edge ephemeral"], acknowledge())
    return keys.receive, keys.send


def ack() -> bytes:
    responder = NoiseResponder(SECRETS["edge static"])
    message, _ = responder.answer(responder.read(init(hello())[1:-MACS_BYTES]), SECRETS["edge ephemeral"], acknowledge())
    return bytes([SealedType.ACK]) + message


def data(key: bytes, counter: int, plain: bytes, *, token: int = TOKEN) -> bytes:
    """A whole DATA."""
    return data_head(token, counter) + AESGCM(key).encrypt(nonce_of(counter), plain, None)


def cookie() -> bytes:
    return cookie_of(SECRETS["cookie secret"], ADDRESS)


def cookie_datagram() -> bytes:
    salt, mac1 = drawn("salt", 16), init(hello())[-MACS_BYTES : -MACS_BYTES // 2]
    return bytes([SealedType.COOKIE]) + salt + seal_cookie(EDGE_KEY, salt, cookie(), mac1)


def here() -> bytes:
    unsigned = unsigned_discovery_reply(drawn("nonce", 16), 4717, edge_certificate().data)
    return unsigned + Signer(SECRETS["edge signing"], edge_certificate()).sign_discovery_reply(unsigned)


def alert() -> Message:
    """A message that the system itself raised."""
    message = Message(
        id=MessageId(1),
        source=edge_source(THE_EDGE),
        topic="alerts/ice",
        seen_at=NOW,
        address=ToArea(Circle(REPORT.place, 500.0)),
        place=REPORT.place,
        valid_until=Instant(NOW + 60 * SECOND_NS),
        priority=Priority.SAFETY,
        fields={"text": "ice"},
    )
    return Signer(SECRETS["edge signing"], edge_certificate()).sign(message)


def datagrams() -> list[dict[str, object]]:
    """One or more of each kind, in the order in which they would be sent."""
    k1, k2 = session_keys()
    first, second = (init(hello(), cookie=one) for one in (b"", cookie()))
    reports = [encode(ReportSent(TOKEN, report)) for report in (REPORT, LATER)]
    answers = [encode(Heartbeat(TOKEN)), encode(PublishDatagram(alert(), TOKEN))]
    salt, mac1_key = drawn("salt", 16), sha256(b"milepost mac1" + EDGE_KEY).digest()
    cookie_key = HKDF(SHA256(), 32, salt, b"milepost cookie").derive(EDGE_KEY)
    question = DiscoveryRequest(drawn("nonce", 16), REPORT.place.latitude, REPORT.place.longitude)
    made: list[dict[str, object]] = [
        {
            "name": "ASK",
            "hex": discovery_request_to_bytes(question),
            "latitude": question.latitude,
            "longitude": question.longitude,
        },
        {"name": "HERE", "hex": here(), "port": 4717, "certificate": "edge", "signature": here()[-64:]},
        {"name": "INIT", "hex": first, "payload": hello(), "mac1_key": mac1_key, "mac1": first[-32:-16], "mac2": first[-16:]},
        {"name": "COOKIE", "hex": cookie_datagram(), "salt": salt, "key": cookie_key, "address": ADDRESS, "cookie": cookie()},
        {"name": "INIT with a cookie", "hex": second, "mac1": second[-32:-16], "mac2": second[-16:]},
        {"name": "ACK", "hex": ack(), "payload": acknowledge(), "reset": RESET},
    ]
    for way, key, plains in (("endpoint to edge", k1, reports), ("edge to endpoint", k2, answers)):
        for counter, plain in enumerate(plains):
            made.append(
                {
                    "name": f"DATA, {way}, counter {counter}",
                    "hex": data(key, counter, plain),
                    "key": key,
                    "counter": counter,
                    "nonce": nonce_of(counter),
                    "plain": plain,
                }
            )
    made.append({"name": "RESET", "hex": reset_datagram(TOKEN, RESET), "reset_key": RESET_KEY, "reset": RESET})
    return made


def flipped(datagram: bytes, at: int) -> bytes:
    """The datagram with the lowest bit of one byte turned over."""
    changed = bytearray(datagram)
    changed[at] ^= 1
    return bytes(changed)


def stamped(datagram: bytes, at: int) -> bytes:
    """An INIT that was changed before its macs were made."""
    changed = flipped(datagram[:-MACS_BYTES], at)
    return changed + Macs(EDGE_KEY).stamp(changed)


def another_init(payload: bytes, *, responder_key: bytes = EDGE_KEY, cookie: bytes = b"") -> bytes:
    """An INIT with an ephemeral key of its own, as each must have that is not a repetition."""
    ephemeral = sha256(b"ephemeral" + payload + responder_key + cookie).digest()
    return init(payload, responder_key=responder_key, cookie=cookie, ephemeral=ephemeral)


def refused_by_the_edge() -> list[tuple[str, bytes, Reason]]:
    """INITs, and DATA after the four of `datagrams`, with the reason an edge has."""
    good, (k1, k2) = another_init(hello()), session_keys()
    report = encode(ReportSent(TOKEN, LATER))
    past = truck_certificate(begins=NOW - 2 * DAY_NS, ends=NOW - 1)
    future = truck_certificate(begins=NOW + 1)
    forged = truck_certificate(authority="another authority")
    borrowed = truck_certificate(key=EDGE_KEY)
    revoked = truck_certificate(serial=REVOKED)
    return [
        ("INIT, mac1 is wrong", flipped(good, -MACS_BYTES), Reason.DECRYPTION_FAILED),
        ("INIT, the ephemeral key was changed", stamped(good, 1), Reason.DECRYPTION_FAILED),
        ("INIT, the sealed key was changed", stamped(good, 1 + KEY_BYTES), Reason.DECRYPTION_FAILED),
        ("INIT, the payload was changed", stamped(good, 1 + 2 * KEY_BYTES + TAG_BYTES), Reason.DECRYPTION_FAILED),
        ("INIT, the ephemeral key is a point of low order", low_order(), Reason.DECRYPTION_FAILED),
        ("INIT, for another edge's key", another_init(hello(), responder_key=TRUCK_KEY), Reason.DECRYPTION_FAILED),
        ("INIT, mac2 is wrong, while cookies are asked for", another_init(hello(), cookie=bytes(16)), Reason.COOKIE_NEEDED),
        ("INIT, sent an hour ago", another_init(hello(sent_at=NOW - 3_600 * SECOND_NS)), Reason.HANDSHAKE_STALE),
        ("INIT, a certificate of another authority", another_init(hello(certificate=forged)), Reason.CERTIFICATE_INVALID),
        ("INIT, a certificate for another key", another_init(hello(certificate=borrowed)), Reason.CERTIFICATE_INVALID),
        ("INIT, a certificate that is over", another_init(hello(certificate=past)), Reason.CERTIFICATE_EXPIRED),
        ("INIT, a certificate that has not begun", another_init(hello(certificate=future)), Reason.CERTIFICATE_EXPIRED),
        ("INIT, a certificate that is revoked", another_init(hello(certificate=revoked)), Reason.CERTIFICATE_REVOKED),
        ("DATA, counter 1 again", data(k1, 1, report), Reason.REPLAYED),
        ("DATA, one bit changed", flipped(data(k1, 2, report), DATA_HEAD_BYTES), Reason.DECRYPTION_FAILED),
        (
            "DATA, sealed with another counter",
            data_head(TOKEN, 2) + data(k1, 3, report)[DATA_HEAD_BYTES:],
            Reason.DECRYPTION_FAILED,
        ),
        ("DATA, sealed with the key of the other direction", data(k2, 2, report), Reason.DECRYPTION_FAILED),
        ("DATA, of a session that the edge does not know", data(k1, 2, report, token=TOKEN + 1), Reason.SESSION_UNKNOWN),
    ]


def low_order() -> bytes:
    good = another_init(hello())
    changed = good[:1] + bytes(KEY_BYTES) + good[1 + KEY_BYTES : -MACS_BYTES]
    return changed + Macs(EDGE_KEY).stamp(changed)


def refused_by_the_endpoint() -> list[tuple[str, bytes, Reason]]:
    """What an endpoint that sent the first INIT passes over; a wrong RESET must not end its session."""
    _, k2 = session_keys()
    speeding = encode(PublishDatagram(replace(alert(), fields={"text": "no ice"}), TOKEN))
    return [
        ("ACK, one bit changed", flipped(ack(), -1), Reason.DECRYPTION_FAILED),
        ("COOKIE, one bit changed", flipped(cookie_datagram(), -1), Reason.DECRYPTION_FAILED),
        ("DATA, counter 0 again", data(k2, 0, encode(Heartbeat(TOKEN))), Reason.REPLAYED),
        ("DATA, with a signed message that was changed", data(k2, 2, speeding), Reason.SIGNATURE_INVALID),
        ("RESET, one bit changed", flipped(reset_datagram(TOKEN, RESET), -1), Reason.DECRYPTION_FAILED),
        ("HERE, one bit changed", flipped(here(), 1), Reason.SIGNATURE_INVALID),
    ]


def spelled_certificate(name: str, certificate: Certificate) -> dict[str, object]:
    body, signature = body_and_signature(certificate.data)
    return {
        "name": name,
        "hex": certificate.data,
        "id": certificate.id,
        "role": certificate.role,
        "key": certificate.key,
        "not_before": str(certificate.not_before),
        "not_after": str(certificate.not_after),
        "serial": str(certificate.serial),
        "signing_key": certificate.signing_key,
        "body": body,
        "signature": signature,
    }


def keys() -> dict[str, object]:
    """Every key, private and public; whatever an edge or endpoint draws at random is fixed here."""
    return {
        **{name: {"private": SECRETS[name], "public": public_of(SECRETS[name])} for name in STATIC},
        **{name: {"private": SECRETS[name], "public": signing_public_of(SECRETS[name])} for name in SIGNING},
        "cookie secret": {"private": SECRETS["cookie secret"]},
    }


def vectors() -> dict[str, object]:
    """The whole file."""
    signed = alert()
    revocations = revoke(SECRETS["authority"], None, [REVOKED], NOW)
    refused = [("edge", *one) for one in refused_by_the_edge()] + [("endpoint", *one) for one in refused_by_the_endpoint()]
    return {
        "now": str(NOW),
        "token": str(TOKEN),
        "keys": keys(),
        "certificates": [spelled_certificate("truck", truck_certificate()), spelled_certificate("edge", edge_certificate())],
        "revocations": {"hex": revocations.data, "issued_at": str(NOW), "serials": [str(REVOKED)]},
        "handshake": handshake(),
        "datagrams": datagrams(),
        "signed_message": {"signed": signed_bytes(signed), "signature": signed.signature, "certificate": "edge"},
        "refused": [
            {"name": name, "to": to, "hex": datagram, "reason": reason.value, "reason_name": reason.name}
            for to, name, datagram, reason in refused
        ],
    }


def written() -> bytes:
    """The file's bytes."""
    return orjson.dumps(vectors(), default=bytes.hex, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


if __name__ == "__main__":
    VECTORS.write_bytes(written())
