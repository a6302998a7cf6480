from house.rules.dead import dead_modules, dead_parts
from house.rules.tree import ROOT, Plant

PROJECT = '[project.scripts]\nmilepost = "milepost.runtime:main"\n[tool.milepost.house]\npublic = ["milepost.model"]\n'


def test_every_module_is_imported_or_declared() -> None:
    assert dead_modules(ROOT) == []


def test_every_script_benchmark_and_test_part_is_used() -> None:
    assert dead_parts(ROOT) == []


def test_a_module_without_importers_is_found(plant: Plant) -> None:
    root = plant(
        {
            "pyproject.toml": PROJECT,
            "src/milepost/__init__.py": "",
            "src/milepost/runtime.py": "from milepost import model",
            "src/milepost/model.py": "import milepost.places",
            "src/milepost/places.py": "",
            "src/milepost/lonely.py": "import milepost.lonely",
        }
    )
    assert dead_modules(root) == ["src/milepost/lonely.py is imported by nothing in src"]


def test_a_missing_public_module_is_found(plant: Plant) -> None:
    root = plant({"pyproject.toml": PROJECT, "src/milepost/runtime.py": ""})
    assert dead_modules(root) == ["pyproject.toml declares milepost.model as public, there is no such module"]


def test_an_unused_script_or_part_is_found(plant: Plant) -> None:
    root = plant(
        {
            "Makefile": "go:\n\tscripts/used\n\tpython -m bench.used\n",
            "scripts/used": "#!/bin/bash",
            "scripts/unused": "#!/bin/bash",
            "bench/used.py": "from bench.peers import redis",
            "bench/peers/redis.py": "",
            "bench/unused.py": "",
            "bench/results/used.json": "[]",
            "tests/oracle.py": "",
            "tests/unused.py": "",
            "tests/unit/test_used.py": "from oracle import scan",
            "tests/vectors/lost.json": "{}",
        }
    )
    unused = ["bench/unused.py", "scripts/unused", "tests/unused.py", "tests/vectors/lost.json"]
    assert dead_parts(root) == [f"{name} is used by nothing" for name in unused]
