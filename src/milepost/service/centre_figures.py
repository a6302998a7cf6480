"""What the centre tells of itself over HTTP: health, readiness, figures."""

from collections.abc import Iterator
from http import HTTPStatus
from time import monotonic

from milepost.service.centre import CentreLink
from milepost.service.metrics import CONTENT_TYPE, Family, Kind, Sample, counter, exposition, gauge, labelled

_TEXT = "text/plain; charset=utf-8"


class CentreFigures:
    """Asked by whoever operates the centre."""

    def __init__(self, link: CentreLink) -> None:
        self._link = link
        self._started_at = monotonic()
        self.is_stopping = False

    def answer(self, method: str, path: str) -> tuple[int, str, bytes]:
        """What is asked for over HTTP."""
        del method
        match path:
            case "/metrics":
                return HTTPStatus.OK, CONTENT_TYPE, exposition(self._families())
            case "/health":
                return HTTPStatus.OK, _TEXT, b"alive\n"
            case "/ready" if self._link.is_ready and not self.is_stopping:
                return HTTPStatus.OK, _TEXT, b"ready\n"
            case "/ready":
                why = "stopping" if self.is_stopping else "reading what the sites have"
                return HTTPStatus.SERVICE_UNAVAILABLE, _TEXT, f"not ready: {why}\n".encode()
            case _:
                return HTTPStatus.NOT_FOUND, _TEXT, b"there are /metrics, /health and /ready\n"

    def _families(self) -> Iterator[Family]:
        centre, outgoing = self._link.centre, self._link.outgoing
        counts, owned = centre.counts, sorted(centre.owned)
        yield gauge("milepost_up_seconds", "Seconds since the start.", monotonic() - self._started_at)
        yield gauge("milepost_centre_endpoints", "Endpoints in the register.", len(centre.register))
        yield gauge("milepost_centre_endpoints_moving", "Endpoints that several sites have.", len(centre.register.split))
        yield _by_site("milepost_centre_owned", "1 for sites that this process acts for.", [(one, 1.0) for one in owned])
        lags = [(one, float(max(0, centre.seen_up_to(one) - centre.position(one)))) for one in owned]
        yield _by_site("milepost_centre_lag_records", "Records of cross-hub that are still to be dealt with.", lags)
        wishes = [(site, float(count)) for site, count in centre.interest.by_site.items()]
        yield _by_site("milepost_centre_wishes", "Different subscriptions that a site has.", wishes)
        yield gauge("milepost_centre_waiting_records", "Records that wait for a log.", outgoing.waiting)
        copied = [Sample(count, (("from", one), ("to", other))) for (one, other), count in sorted(counts.copied.items())]
        what = "Messages and letters copied from one site to another."
        yield Family("milepost_centre_copied_total", Kind.COUNTER, what, copied)
        yield counter("milepost_centre_repeated_total", "Records that were there already.", counts.repeated)
        yield counter("milepost_centre_refused_total", "Records that a log will never take.", outgoing.refused)
        yield counter("milepost_centre_moves_started_total", "Handovers between sites.", counts.moves_started)
        yield counter("milepost_centre_moves_finished_total", "Handovers between sites that were taken.", counts.moves_finished)
        yield counter("milepost_centre_extras_total", "Messages sent after an endpoint on the move.", counts.extras)
        yield counter("milepost_centre_claims_told_total", "Edges told that an endpoint is elsewhere.", counts.claims_told)
        yield counter("milepost_centre_answers_total", "Edges told where an endpoint was.", counts.questions_answered)
        dropped = [(why.name, float(count)) for why, count in counts.dropped.items()]
        yield labelled("milepost_centre_dropped_total", Kind.COUNTER, "What was not dealt with, by reason.", "reason", dropped)


def _by_site(name: str, what: str, values: list[tuple[str, float]]) -> Family:
    return labelled(name, Kind.GAUGE, what, "site", values)
