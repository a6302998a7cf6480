"""Locations of endpoints and topology of sites, as values for JSON and as text tables."""

from collections.abc import Sequence
from typing import Any, Final

from milepost.cli.message_output import shown_age, shown_text
from milepost.model.endpoints import EndpointId
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.places import Place
from milepost.model.site_records import EdgeInfo, EndpointClaim
from milepost.runtime.site_view import SitesView
from milepost.wire.area_text import place_to_text
from milepost.wire.geojson import area_to_geojson
from milepost.wire.times import instant_from_text, instant_to_text

HUB_TIMEOUT_NS: Final = 5 * SECOND_NS
"""Time without a heartbeat after which a process of the central hub counts as down."""

_EDGES_HEAD: Final = ("site", "edge", "endpoints", "coverage", "address")
_SITES_HEAD: Final = ("site", "hub", "state", "lag")


def location_of(view: SitesView, endpoint: EndpointId) -> dict[str, Any] | None:
    """Return the registry entry and last position of an endpoint; None if no site has it."""
    claims = view.hub.registry.claims_by_site(endpoint)
    if not claims:
        return None
    first, *others = claims
    seen = view.hub.registry.position_of(endpoint)
    place = seen.place if seen is not None else first.place
    return {
        "endpoint": endpoint,
        **_claimed(first),
        "place": None if place is None else [place.latitude, place.longitude],
        "seen_at": None if seen is None else instant_to_text(seen.seen_at),
        "heading_deg": None if seen is None else seen.heading_deg,
        "speed_mps": None if seen is None else seen.speed_mps,
        "others": [_claimed(claim) for claim in others],
    }


def shown_location(found: dict[str, Any], now: Instant) -> str:
    """Format the result of `location_of` as lines."""
    lines = [
        f"endpoint  {shown_text(found['endpoint'])}",
        f"edge      {found['site']}/{found['edge']}",
        f"since     {found['since']}  ({shown_age(now - instant_from_text(found['since'], now))})",
    ]
    if found["place"] is not None:
        seen = f"  seen at {found['seen_at']}" if found["seen_at"] else ""
        lines.append(f"place     {place_to_text(Place(*found['place']))}{seen}")
    lines += [
        f"also at   {one['site']}/{one['edge']}  since {one['since']}: not handed over completely" for one in found["others"]
    ]
    return "\n".join(lines)


def topology(view: SitesView, now: Instant) -> dict[str, Any]:
    """Return the sites, their edges and the central hub process of each site."""
    counts = view.endpoints_by_edge()
    found: dict[str, Any] = {}
    for site in view.logs:
        heartbeat = view.hub.heartbeats.get(site)
        edges = sorted((info for info in view.hub.coverage.edges() if info.edge.site == site), key=lambda one: one.edge)
        found[site] = {
            "hub": None if heartbeat is None else heartbeat.name,
            "is_hub_up": heartbeat is not None and now - heartbeat.at < HUB_TIMEOUT_NS,
            "hub_heartbeat_at": None if heartbeat is None else instant_to_text(heartbeat.at),
            "lag": view.lag(site),
            "edges": {info.edge.edge: _edge(info, counts[info.edge]) for info in edges},
        }
    return found


def shown_topology(found: dict[str, Any]) -> str:
    """Format the result of `topology` as a table of sites and one of edges."""
    sites = [(site, *_hub_cells(one)) for site, one in found.items()]
    edges = [
        (site, name, str(edge["endpoints"]), _coverage_cell(edge), edge["address"] or "-")
        for site, one in found.items()
        for name, edge in one["edges"].items()
    ]
    lines = table(_SITES_HEAD, sites)
    return "\n".join([*lines, "", *table(_EDGES_HEAD, edges)] if edges else lines)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Format rows below a head, in aligned columns."""
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in (head, *rows)]


def _claimed(claim: EndpointClaim) -> dict[str, Any]:
    return {
        "site": claim.edge.site,
        "edge": claim.edge.edge,
        "since": instant_to_text(Instant(claim.epoch)),
    }


def _edge(info: EdgeInfo, endpoints: int) -> dict[str, Any]:
    return {
        "endpoints": endpoints,
        "coverage": None if info.coverage is None else area_to_geojson(info.coverage),
        "outside_squares": len(info.outside_squares),
        "address": info.address,
    }


def _hub_cells(site: dict[str, Any]) -> tuple[str, str, str]:
    state = "up" if site["is_hub_up"] else "down" if site["hub"] else "none"
    return site["hub"] or "-", state, "-" if site["lag"] is None else str(site["lag"])


def _coverage_cell(edge: dict[str, Any]) -> str:
    outside = f" and {edge['outside_squares']} squares outside" if edge["outside_squares"] else ""
    match edge["coverage"]:
        case None:
            return "everywhere"
        case {"type": "Box", "bbox": [west, south, east, north]}:
            return f"box {south:g},{west:g} to {north:g},{east:g}{outside}"
        case {"type": "Point", "coordinates": [longitude, latitude], "radius_m": radius_m}:
            return f"{radius_m:g} m around {latitude:g},{longitude:g}{outside}"
        case coverage:
            return f"{coverage['type']}{outside}"
