import pytest

from house.rules.purity import contract_faults, purity_faults
from house.rules.tree import ROOT, Plant


def test_packages_below_the_adapters_do_no_io() -> None:
    assert purity_faults(ROOT) == []


def test_the_import_contract_covers_every_pure_package() -> None:
    assert contract_faults(ROOT) == []


@pytest.mark.parametrize(
    "line",
    [
        "import asyncio",
        "import time as clock",
        "from random import random",
        "from secrets import token_bytes",
        "from kazoo.client import KazooClient",
        "import pyspark.sql",
        "from os import urandom",
        "from numpy import random",
        "import datetime; now = datetime.datetime.now()",
        "from datetime import datetime; now = datetime.utcnow()",
        "import numpy as np; draw = np.random.default_rng()",
        "import numpy as np; now = np.datetime64('now')",
        "import os; noise = os.urandom(8)",
        "clock = __import__('time')",
        "rows = open('rows.csv')",
        "def later():\n    import uuid",
    ],
)
def test_io_in_a_pure_package_is_found(plant: Plant, line: str) -> None:
    root = plant({"src/milepost/vetting/limits.py": line, "src/milepost/listeners/udp.py": line})
    assert [fault.partition(":")[0] for fault in purity_faults(root)] == ["src/milepost/vetting/limits.py"]


def test_a_package_missing_from_the_contract_is_found(plant: Plant) -> None:
    contract = (
        '[[tool.importlinter.contracts]]\ntype = "forbidden"\nsource_modules = ["milepost.model"]\nforbidden_modules = ["time"]\n'
    )
    root = plant(
        {
            "pyproject.toml": contract,
            "src/milepost/model/x.py": "",
            "src/milepost/broker/x.py": "",
            "src/milepost/listeners/x.py": "",
        }
    )
    faults = contract_faults(root)
    assert "pyproject.toml: the forbidden contract does not name milepost.broker" in faults
    assert "pyproject.toml: the forbidden contract does not name asyncio" in faults
    assert not any("listeners" in fault or "milepost.model" in fault for fault in faults)
