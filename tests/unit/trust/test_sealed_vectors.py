"""The published vectors of sealed sessions agree with the code, and with an independent implementation of Noise (M28).

The two sides below read datagrams in the order that `docs/reference/wire.md` gives, so that each refusal has its reason.
"""

import hmac
from typing import Any

import orjson
import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from milepost.model.instants import SECOND_NS, Instant
from milepost.model.messages import MessageSigner
from milepost.model.reasons import Malformed, Reason, Refused
from milepost.model.session_datagrams import Datagram, PublishDatagram
from milepost.trust.certificates import CertificateAuthority, read_certificate, read_revocations
from milepost.trust.cookies import Macs, open_cookie
from milepost.trust.noise import NoiseInitiator, NoiseResponder, SessionKeys
from milepost.trust.replay_window import ReplayWindow
from milepost.trust.signing import Verifier
from milepost.wire.datagrams import decode
from milepost.wire.sealed import (
    DATA_HEAD_BYTES,
    MACS_BYTES,
    SealedType,
    counter_of,
    discovery_reply_from_bytes,
    discovery_request_from_bytes,
    hello_from_bytes,
    nonce_of,
    token_of,
)
from scripts.make_sealed_vectors import VECTORS, written
from unit.trust.independent_noise import independent_handshake, keys_of

FILE = orjson.loads(VECTORS.read_bytes())
NOW, TOKEN = Instant(int(FILE["now"])), int(FILE["token"])
SENT_AGO_NS_MAX = 60 * SECOND_NS


def private(name: str) -> bytes:
    return bytes.fromhex(FILE["keys"][name]["private"])


def public(name: str) -> bytes:
    return bytes.fromhex(FILE["keys"][name]["public"])


def datagram(name: str) -> bytes:
    (found,) = [one for one in FILE["datagrams"] if one["name"] == name]
    return bytes.fromhex(found["hex"])


def insist(verdict: Refused | MessageSigner | None) -> None:
    if isinstance(verdict, Refused):
        raise Malformed(verdict.reason, verdict.detail)


class Side:
    """The handling of DATA, common to both sides."""

    def __init__(self) -> None:
        self.authority = CertificateAuthority(public("authority"))
        self.authority.use(read_revocations(bytes.fromhex(FILE["revocations"]["hex"]), public("authority")))
        self.window = ReplayWindow()
        self.keys = SessionKeys(b"", b"")

    def read_data(self, data: bytes) -> Datagram:
        counter = counter_of(data)
        if token_of(data) != TOKEN:
            raise Malformed(Reason.SESSION_UNKNOWN)
        if not self.window.is_new(counter):
            raise Malformed(Reason.REPLAYED)
        try:
            plain = AESGCM(self.keys.receive).decrypt(nonce_of(counter), data[DATA_HEAD_BYTES:], None)
        except InvalidTag:
            raise Malformed(Reason.DECRYPTION_FAILED) from None
        self.window.take(counter)
        return decode(plain)


class Edge(Side):
    """Reads the datagrams of an endpoint."""

    def __init__(self, cookie: bytes) -> None:
        super().__init__()
        self._cookie = cookie

    def read(self, data: bytes) -> None:
        match data[0]:
            case SealedType.INIT:
                self._read_init(data)
            case SealedType.ASK:
                discovery_request_from_bytes(data)
            case _:
                self.read_data(data)

    def _read_init(self, data: bytes) -> None:
        macs, responder = Macs(public("edge static")), NoiseResponder(private("edge static"))
        if not macs.is_mac1_valid(data):
            raise Malformed(Reason.DECRYPTION_FAILED)
        if any(data[-MACS_BYTES // 2 :]) and not macs.is_mac2_valid(data, self._cookie):
            raise Malformed(Reason.COOKIE_NEEDED)
        heard = responder.read(data[1:-MACS_BYTES])
        hello = hello_from_bytes(heard.payload)
        certificate = read_certificate(hello.certificate)
        insist(self.authority.check(certificate, NOW))
        if certificate.key != heard.key:
            raise Malformed(Reason.CERTIFICATE_INVALID)
        if abs(NOW - hello.sent_at) > SENT_AGO_NS_MAX:
            raise Malformed(Reason.HANDSHAKE_STALE)
        decode(hello.datagram)
        _, self.keys = responder.answer(heard, private("edge ephemeral"), b"")


class Endpoint(Side):
    """Reads the datagrams of an edge, after the first INIT."""

    def __init__(self) -> None:
        super().__init__()
        self._initiator = NoiseInitiator(private("truck static"), public("edge static"), private("truck ephemeral"))
        self._initiator.write(bytes.fromhex(FILE["datagrams"][2]["payload"]))
        self.reset = b""
        self.cookie = b""

    def read(self, data: bytes) -> None:
        verifier = Verifier(self.authority)
        match data[0]:
            case SealedType.ACK:
                _, self.keys = self._initiator.read(data[1:])
            case SealedType.COOKIE:
                self.cookie = open_cookie(public("edge static"), data[1:17], data[17:], datagram("INIT")[-32:-16])
            case SealedType.RESET:
                if token_of(data) != TOKEN or not hmac.compare_digest(data[9:], bytes.fromhex(FILE["datagrams"][5]["reset"])):
                    raise Malformed(Reason.DECRYPTION_FAILED)
            case SealedType.HERE:
                here = discovery_reply_from_bytes(data)
                insist(verifier.check_discovery_reply(here.signed, read_certificate(here.certificate), here.signature, NOW))
            case _:
                said = self.read_data(data)
                if isinstance(said, PublishDatagram):
                    insist(verifier.check(said.message, NOW))


def both_sides() -> dict[str, Edge | Endpoint]:
    """Return both sides after each has read all valid datagrams addressed to it."""
    endpoint = Endpoint()
    endpoint.read(datagram("COOKIE"))
    edge = Edge(endpoint.cookie)
    for one in FILE["datagrams"]:
        data = bytes.fromhex(one["hex"])
        is_for_edge = data[0] in (SealedType.INIT, SealedType.ASK) or "endpoint to edge" in one["name"]
        (edge if is_for_edge else endpoint).read(data)
    return {"edge": edge, "endpoint": endpoint}


def test_the_file_is_what_the_script_writes() -> None:
    assert VECTORS.read_bytes() == written()


def test_every_valid_datagram_decodes_and_every_kind_occurs() -> None:
    sides = both_sides()
    assert {bytes.fromhex(one["hex"])[0] for one in FILE["datagrams"]} == set(SealedType)
    assert [(side.window.greatest, side.window.seen) for side in sides.values()] == [(1, 3), (1, 3)]


@pytest.mark.parametrize("vector", [pytest.param(one, id=f"{one['to']}: {one['name']}") for one in FILE["refused"]])
def test_a_bad_datagram_is_refused_for_the_stated_reason(vector: dict[str, Any]) -> None:
    side = both_sides()[vector["to"]]
    with pytest.raises(Malformed) as caught:
        side.read(bytes.fromhex(vector["hex"]))
    assert (caught.value.reason.value, caught.value.reason.name) == (vector["reason"], vector["reason_name"])


def test_an_independent_implementation_matches_both_sides_of_the_handshake() -> None:
    shown = FILE["handshake"]
    endpoint = independent_handshake(
        static=private("truck static"), ephemeral=private("truck ephemeral"), responder_key=public("edge static")
    )
    edge = independent_handshake(static=private("edge static"), ephemeral=private("edge ephemeral"))
    first = bytes(endpoint.write_message(bytes.fromhex(FILE["datagrams"][2]["payload"])))
    edge.read_message(first)
    second = bytes(edge.write_message(bytes.fromhex(FILE["datagrams"][5]["payload"])))
    endpoint.read_message(second)
    assert (first.hex(), second.hex()) == (shown["message_1"], shown["message_2"])
    assert datagram("INIT")[1:-MACS_BYTES] == first
    assert datagram("ACK")[1:] == second
    assert edge.noise_protocol.handshake_hash.hex() == shown["handshake_hash"]
    assert [key.hex() for key in keys_of(endpoint)] == [shown["k1_endpoint_to_edge"], shown["k2_edge_to_endpoint"]]
    assert [one["key"] for one in FILE["datagrams"] if "key" in one and one["name"].startswith("DATA")] == [
        *[shown["k1_endpoint_to_edge"]] * 2,
        *[shown["k2_edge_to_endpoint"]] * 2,
    ]


def test_the_handshake_steps_lead_to_the_stated_keys() -> None:
    steps = FILE["handshake"]["steps"]
    assert [step["h"] for step in steps if "h" in step][-1] == FILE["handshake"]["handshake_hash"]
    assert [step["ck"] for step in steps if "ck" in step][-1] == FILE["handshake"]["chaining_key"]
    assert (
        "".join(step["sealed"] for step in steps if "message 1" in step["step"] and "sealed" in step)
        in (FILE["handshake"]["message_1"])
    )


def test_the_certificates_decode_to_the_stated_fields() -> None:
    for one in FILE["certificates"]:
        certificate = read_certificate(bytes.fromhex(one["hex"]))
        assert (certificate.id, certificate.role, certificate.key.hex()) == (one["id"], one["role"], one["key"])
        assert [str(certificate.not_before), str(certificate.not_after)] == [one["not_before"], one["not_after"]]
        assert (str(certificate.serial), certificate.signing_key.hex()) == (one["serial"], one["signing_key"])
