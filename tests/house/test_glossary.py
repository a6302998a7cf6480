from house.rules.glossary import glossary_faults
from house.rules.tree import ROOT, Plant


def test_the_glossary_has_the_whole_vocabulary() -> None:
    assert glossary_faults(ROOT) == []


def test_a_word_that_the_glossary_lacks_is_found(plant: Plant) -> None:
    glossary = "| time window | when | `milepost.model.time_windows.TimeWindow` |"
    root = plant(
        {"docs/glossary.md": glossary, "src/milepost/model/time_windows.py": "", "src/milepost/model/multicast_cells.py": ""}
    )
    assert glossary_faults(root) == ["milepost.model.multicast_cells is not in docs/glossary.md"]
