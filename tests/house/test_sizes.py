from house.rules.sizes import SMALL_BY_DESIGN, size_faults, small_faults
from house.rules.tree import ROOT, Plant


def test_files_and_functions_are_small() -> None:
    assert size_faults(ROOT) == []


def test_a_long_file_and_a_long_function_are_found(plant: Plant) -> None:
    long_function = "def walk():\n" + "    x = 1\n" * 60
    root = plant({"src/milepost/long.py": "x = 1\n" * 601, "bench/one.py": long_function, "scripts/run": "#!/bin/bash\n" * 601})
    assert size_faults(root) == [
        "scripts/run has 601 lines, 600 are allowed",
        "src/milepost/long.py has 601 lines, 600 are allowed",
        "bench/one.py:1 walk has 61 lines, 60 are allowed",
    ]


def test_the_largest_allowed_and_generated_code_pass(plant: Plant) -> None:
    root = plant(
        {
            "src/milepost/full.py": "x = 1\n" * 600,
            "tests/unit/test_full.py": "def test_full():\n" + "    x = 1\n" * 59,
            "src/milepost/wire/_generated/packets.py": "x = 1\n" * 900,
        }
    )
    assert size_faults(root) == []


def test_a_small_module_has_several_importers_or_a_reason() -> None:
    assert small_faults(ROOT, SMALL_BY_DESIGN) == []


SMALL = {
    "src/milepost/model/__init__.py": "from milepost.model.areas import Area\n",
    "src/milepost/model/areas.py": "Area = int\n",
    "src/milepost/model/units.py": "METRE = 1\n",
    "src/milepost/wire/area.py": "from milepost.model.units import METRE\n",
    "src/milepost/wire/long.py": "x = 1\n" * 60,
    "src/milepost/wire/text.py": "import milepost.wire.long\nfrom milepost.wire import area\nimport milepost.wire.both\n",
    "src/milepost/wire/json.py": "import milepost.wire.text\nimport milepost.wire.both\n",
    "src/milepost/wire/both.py": "",
}


def test_a_small_module_with_one_importer_is_found(plant: Plant) -> None:
    assert small_faults(plant(SMALL), {"milepost.wire.area": "a reason", "milepost.wire.text": "a reason"}) == [
        "src/milepost/model/units.py has 1 lines and one importer, milepost.wire.area: merge it"
    ]


def test_an_outdated_exception_is_found(plant: Plant) -> None:
    modules = ("milepost.wire.area", "milepost.wire.text", "milepost.model.units", "milepost.wire.long")
    assert small_faults(plant(SMALL), dict.fromkeys(modules, "a reason")) == [
        "milepost.wire.long is not a small module with one importer any more: remove it from the list"
    ]
    gone = dict.fromkeys((*modules[:3], "milepost.gone"), "a reason")
    assert small_faults(plant(SMALL), gone) == ["milepost.gone does not exist: remove it from the list"]
