"""Who comes towards an incident: the area of its alerts where the roads are known (M26)."""

from milepost.model.areas import Area, Circle, Union
from milepost.roads import Network, Placing, Reach, maybe_upstream


class Approach:
    """A road network, and how far upstream of an incident alerts go."""

    def __init__(self, network: Network, *, upstream_s: float) -> None:
        self._network = network
        self._placing = Placing(network)
        self._reach = Reach(seconds=upstream_s)

    def area_for(self, circle: Circle, otherwise: Circle) -> Area:
        """All within a circle, and all on their way to its middle; the other circle where there is no road there."""
        upstream = maybe_upstream(self._network, self._placing.spots_at(circle.centre), self._reach)
        return otherwise if upstream is None else Union((circle, upstream))
