from house.rules.sizes import size_faults
from house.rules.tree import ROOT, Plant


def test_files_and_functions_are_small() -> None:
    assert size_faults(ROOT) == []


def test_a_long_file_and_a_long_function_are_found(plant: Plant) -> None:
    long_function = "def walk():\n" + "    x = 1\n" * 60
    root = plant({"src/milepost/long.py": "x = 1\n" * 401, "bench/one.py": long_function, "scripts/run": "#!/bin/bash\n" * 401})
    assert size_faults(root) == [
        "scripts/run has 401 lines, 400 are allowed",
        "src/milepost/long.py has 401 lines, 400 are allowed",
        "bench/one.py:1 walk has 61 lines, 60 are allowed",
    ]


def test_the_largest_allowed_and_generated_code_pass(plant: Plant) -> None:
    root = plant(
        {
            "src/milepost/full.py": "x = 1\n" * 400,
            "tests/unit/test_full.py": "def test_full():\n" + "    x = 1\n" * 59,
            "src/milepost/wire/_generated/packets.py": "x = 1\n" * 900,
        }
    )
    assert size_faults(root) == []
