"""From a udp URL to an edge: who asks, from where, and whom it believes."""

from secrets import token_hex

from milepost.client.edge import Edge
from milepost.client.patience import Patience
from milepost.client.udp.carrier import Endpoint, UdpCarrier
from milepost.client.udp.finding import Seeker
from milepost.client.udp.targets import udp_target_of
from milepost.client.udp.trust import Trust
from milepost.model.endpoints import EndpointId, endpoint_id
from milepost.model.places import Place
from milepost.model.reasons import Malformed, Reason
from milepost.trust.authority import Authority
from milepost.wire.sealed import KEY_BYTES


def over_udp(
    url: str,
    client_id: str | None,
    place: Place | None,
    trust: Trust | None,
    edge_key: bytes | None,
    resolver: tuple[str, int] | None,
    patience: Patience,
    receive_max: int,
    *,
    hears_cells: bool,
) -> Edge:
    """An edge that is not open yet; what cannot be said is `Malformed`, what is no URL a `ValueError`."""
    target = udp_target_of(url)
    if place is None:
        raise Malformed(Reason.FIELD_MISSING, "place: over udp a session begins with where one is, such as Place(48.1, 11.6)")
    certificate = None if trust is None else trust.certificate
    if edge_key is not None and (len(edge_key) != KEY_BYTES or certificate is None):
        raise Malformed(Reason.FIELD_RANGE, f"edge_key has {KEY_BYTES} bytes, and is used with a certificate: give trust, too")
    if certificate is not None and client_id not in (None, certificate.id):
        raise Malformed(Reason.FIELD_RANGE, f"client_id is {client_id!r}, the certificate is {certificate.id!r}'s: leave it out")
    name = EndpointId(f"client-{token_hex(8)}") if client_id is None else endpoint_id(client_id)
    endpoint = Endpoint(name if certificate is None else certificate.id, place, trust, receive_max, hears_cells)
    believed = None if trust is None or certificate is None else Authority(trust.authority)
    carrier = UdpCarrier(endpoint, Seeker(target, place, believed, edge_key or b"", resolver), patience)
    return Edge(carrier, unclaimed_max=max(1, receive_max // 2))
