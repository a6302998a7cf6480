"""The thresholds of reputation: each with its reason, all in one place."""

from dataclasses import dataclass
from typing import Final

from milepost.pipelines.reputation.schema import What


@dataclass(frozen=True, slots=True)
class Limits:
    """What counts as evidence. Set on traffic of SUMO with receivers' errors (`bench/reputation.py`), training seeds only."""

    reports_max: int = 720
    """A minute. ETSI and SAE let a car speak ten times a second; a fifth is for clocks that are off and reports sent twice."""
    gap_s_min: float = 0.2
    """Of two reports a shorter time apart the errors of the places are more than the way."""
    gap_s_max: float = 5.0
    """In a longer time a car has taken a corner."""
    place_error_m: float = 5.0
    """A receiver wanders by metres, though less than this within seconds."""
    change_mps2: float = 6.0
    """Cars change speed and direction by less, tyres and brakes at their limit by more: twice in a lifetime."""
    moving_mps: float = 5.0
    """Slower than this who stands and who rolls cannot be told apart by places."""
    still_share: float = 0.15
    """Who moved less than this share of the way that the speed makes stood still."""
    brake_mps2: float = 10.5
    """No car on a road brakes like this; a crash does, which is why a sudden stop alone says little."""
    standing_mps: float = 0.5
    through_m: float = 1.5
    """Half a car's width and the error of a place: a car in the next lane is 3 m away."""
    overlap_m: float = 1.0
    overlap_s: int = 5
    """Two receivers err towards each other for a moment, not for so many seconds of a minute."""
    step_m: float = 3.0
    """How far the place beside another may shift, in means of five seconds, for both to move in step."""
    step_near_m: float = 100.0
    step_s: int = 30
    step_way_m: float = 150.0
    step_change_mps: float = 6.0
    """Who follows at one speed keeps the distance too: only who speeds up or slows down shows to be another."""
    replay_places: int = 4
    """One place can be met by chance; so many, each as much later as the other, cannot."""
    way_side_m: float = 12.0
    """Of the small squares by which ways are learnt: as wide as a street."""
    way_others: int = 2
    """So many others drive where there is a way: one may be another that lies."""
    way_share_min: float = 0.9
    """Ways are known where so many of all places are on them; before, nobody is judged by them."""
    way_hours: float = 1.0
    """A way on which nobody was for so long is forgotten."""
    event_m: float = 60.0
    event_s: float = 30.0
    confirm_m: float = 150.0
    """The join distance of most kinds of events."""
    pass_mps: float = 8.0
    passers_min: int = 2
    """Who passes so fast so near has seen no obstacle; one may have looked elsewhere."""


@dataclass(frozen=True, slots=True)
class Weight:
    """From `low` on something counts, from `high` on in full: it then takes `most` of the score."""

    low: float
    high: float
    most: float
    per: What | None = None
    """Counted as a share of this; nothing: as it is."""
    per_min: float = 20.0
    """A share of fewer is taken as one of so many: three odd moves out of four are no habit."""


WEIGHTS: Final[dict[What, Weight]] = {
    # A tenth too much may be a clock; what an edge refuses for its rate is among the reports.
    What.FLOOD: Weight(0, 200, 0.8),
    # A clock that is off has all refused and is no lie.
    What.REFUSED: Weight(0.1, 0.5, 0.4, What.REPORTS),
    # A receiver that wakes up in a tunnel's end jumps once or twice.
    What.IMPOSSIBLE_MOVE: Weight(0.05, 0.2, 0.9, What.REPORTS),
    # Of 2,000 honest cars none had more than one such move.
    What.MISFIT: Weight(0.1, 0.3, 0.9, What.MOVES),
    What.STANDS_STILL: Weight(0.1, 0.3, 0.9, What.MOVES),
    # Who has crashed stops like this, and is to be believed most of all.
    What.SUDDEN_STOP: Weight(0, 2, 0.3),
    # Who stands in a jam is passed in the next lane, and places err by a lane: alone it never shuts anybody out.
    What.DRIVEN_THROUGH: Weight(6, 14, 0.45),
    # Two honest cars in one place for ten seconds of a minute, once: one receiver errs.
    What.OVERLAP: Weight(10, 30, 0.7),
    # One car in step with another may be towed.
    What.IN_STEP: Weight(1, 5, 0.9),
    What.REPLAY: Weight(4, 12, 0.95),
    # The first on a new road, or a car park, is off the ways of others for a while.
    What.OFF_WAYS: Weight(0.2, 0.5, 0.8, What.PLACES, 40.0),
    # Nobody is right always: two more than were confirmed make a doubt, three a habit.
    What.CONTRADICTED: Weight(0, 3, 0.8),
}
"""What each finding takes of the score, over the minutes that count."""

MINUTES: Final = 10
"""So long evidence counts."""
