"""What a process of the centre passed over before it was killed, and cannot be copied any more, goes to who moves as an extra."""

from hub_in_memory import Sites
from milepost.model.sites import CROSS_HUB, Extra


def test_who_moves_gets_what_an_earlier_process_passed_over_before_it_copied_something_later() -> None:
    sites = Sites("north", "south", "east")
    sites.start_centre().kill()
    passed, copied = sites.said("east/1", "x/1"), sites.said("east/1", "x/2")
    handover = sites.hands_over("north/1", "south/1", "car", ["topic:x/#"], marks={"east/1": passed.number - 1})
    sites.append("south", CROSS_HUB, "south/1", handover)
    sites.append("south", CROSS_HUB, "", copied)
    sites.start_centre()
    sites.settle()
    extras = [one for one in sites.values("south") if isinstance(one, Extra) and one.sender.site == "east"]
    assert [said for one in extras for said in one.said] == [passed]
    assert [one.is_last for one in extras] == [True]
    assert sites.heard("south") == ["x/2"]
