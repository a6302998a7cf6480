import pytest

from house.rules.machines import REGISTRY_HOSTS, machine_faults
from house.rules.tree import ROOT, Plant


def test_no_file_contains_a_machine_path_or_a_registry_host() -> None:
    assert machine_faults(ROOT) == []


@pytest.mark.parametrize("folder", ["home", "root", "Users", "work"])
def test_a_machine_path_is_found(plant: Plant, folder: str) -> None:
    root = plant(
        {"docs/a.md": f"see /{folder}/ada/notes", "docs/b.md": f"see ./{folder}/ada and https://example.org/{folder}/ada"}
    )
    assert machine_faults(root) == [f"docs/a.md:1 names /{folder}/ada"]


@pytest.mark.parametrize("host", REGISTRY_HOSTS)
def test_a_registry_host_is_found_outside_the_lock_file(plant: Plant, host: str) -> None:
    root = plant({"Makefile": f"\tcurl https://{host}/simple", "uv.lock": f'url = "https://{host}/simple"'})
    assert machine_faults(root) == [f"Makefile:1 names {host}"]


def test_an_index_option_is_found(plant: Plant) -> None:
    option = "index-url"
    assert len(machine_faults(plant({"Makefile": f"\tpip install --{option}=http://packages"}))) == 1
