"""The threat model names every attack test, and only tests that exist."""

import ast
import re

from parts import ROOT

PAGE = ROOT / "docs" / "threat-model.md"
ATTACKS = ROOT / "tests" / "live" / "attacks"


def test_the_threat_model_names_the_tests_of_all_attacks() -> None:
    tests = {
        (path.name, node.name)
        for path in ATTACKS.glob("test_*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }
    rows = [line for line in PAGE.read_text().splitlines() if "`: `test_" in line]
    named = {
        (file, name) for row in rows for file in re.findall(r"`(test_\w+\.py)`", row) for name in re.findall(r"`(test_\w+)`", row)
    }
    assert named == tests
