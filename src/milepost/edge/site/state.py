"""What the parts of an edge's membership in a site share: who it is, what it has read, what it is about to say."""

from collections import Counter
from typing import Final

from milepost.edge.corridor import Corridor
from milepost.edge.keeping import Kept
from milepost.edge.site.interest import Interest
from milepost.edge.site.limits import SiteLimits
from milepost.edge.site.outbox import Append, Outbox
from milepost.edge.site.recent import Recent
from milepost.edge.site.register import SiteRegister
from milepost.edge.site.stays import Marks
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.sites import CROSS_HUB, VEHICLE_INFO, Claim, EdgeInfo, EdgeRef, Said, SiteRecord, claim_key
from milepost.wire.records import to_record

CENTRE_AWAY_NS: Final = 5 * SECOND_NS
"""A centre that has said nothing for so long counts as away."""

_OFFSET, _SAID, _LETTER = "offset ", "said ", "letter "


class SiteState:
    """Held together by `SiteMember`."""

    def __init__(self, corridor: Corridor, me: EdgeRef, limits: SiteLimits) -> None:
        self.corridor = corridor
        self.me = me
        self.limits = limits
        self.outbox = Outbox(limits)
        self.interest = Interest(corridor.planner.change)
        self.register = SiteRegister(limits.register_max)
        self.recent = Recent(limits)
        self.marks: Marks = {}
        """By edge, what this edge has read of it on cross-hub; of itself, what it has read back."""
        self.letters: Marks = {}
        """The same of letters."""
        self.offsets: Marks = {}
        """By topic, what is to be read next."""
        self.next_offset = 0
        """Of cross-hub, while its records are read one by one."""
        self.known_end = 0
        """Where cross-hub ended when this edge started: what earlier processes of it said stands before, or is in the outbox."""
        self.read_at = Instant(0)
        """When the last record read of cross-hub was appended."""
        self.edges: dict[EdgeRef, EdgeInfo] = {}
        """All other edges that are known of, of all sites."""
        self.neighbours: frozenset[str] = frozenset()
        """Sites that can be reached without the centre."""
        self.centre_at = Instant(0)
        """When a centre was last heard of, by this edge's clock."""
        self.is_ready = False
        """Whether the site's register was read as far as it was written when this edge started."""
        self.counts: Counter[str] = Counter()
        """What happened, for the figures."""

    def restore(self, kept: Kept) -> None:
        """Go on where an earlier process was."""
        for name, number in kept.marks.items():
            for head, marks in ((_OFFSET, self.offsets), (_SAID, self.marks), (_LETTER, self.letters)):
                if name.startswith(head):
                    marks[name.removeprefix(head)] = number
        self.outbox.restore(kept.outbox, self.marks.get(str(self.me), 0))

    def is_centre_there(self, now: Instant) -> bool:
        """Whether a centre was heard of lately."""
        return now - self.centre_at < CENTRE_AWAY_NS

    def note_offset(self, topic: str, offset: int) -> None:
        """All of a topic before an offset was read."""
        self.offsets[topic] = offset
        self.corridor.changes.marks[_OFFSET + topic] = offset

    def stream_of(self, said: Said) -> str:
        """The stream of numbers that a message stands in: what came without the centre may overtake what did not (M33)."""
        return f"{said.sender} direct" if self.me.site in said.direct else str(said.sender)

    def is_new(self, said: Said) -> bool:
        """Whether a message of another edge, or of this one, was not read before; from now on it was."""
        return self._is_new(self.marks, _SAID, self.stream_of(said), said.number)

    def is_new_letter(self, sender: EdgeRef, number: int, *, is_last: bool = True) -> bool:
        """The same of what edges write to each other; unless it is the last part, another process has to read it again."""
        return self._is_new(self.letters, _LETTER, str(sender), number, is_kept=is_last)

    def _is_new(self, marks: Marks, head: str, sender: str, number: int, *, is_kept: bool = True) -> bool:
        if number <= marks.get(sender, 0):
            self.counts["doubles"] += 1
            return False
        marks[sender] = number
        if is_kept:
            self.corridor.changes.marks[head + sender] = number
        return True

    def write(self, record: SiteRecord, number: int, receiver: EdgeRef) -> None:
        """A letter to another edge, kept until the log has it."""
        self.outbox.spool(Append(number, CROSS_HUB, str(receiver), to_record(record)), self.corridor.changes)

    def say_claim(self, claim: Claim) -> None:
        """Say that an endpoint is at this edge."""
        self.register.put(claim)
        self.outbox.say(VEHICLE_INFO, claim_key(claim.endpoint, self.me), to_record(claim))
