"""With CI=true a missing part is a failure, never a skip."""

import json

import pytest

from house.rules.tree import ROOT
from parts import need

SKIPPING = """
import pytest
from parts import need

def test_passes(): pass
def test_needs_a_part(): need("no-such-command", debian="redis-server")
@pytest.mark.skip(reason="a reason")
def test_marked(): pass
@pytest.mark.xfail(reason="known", strict=True)
def test_known_fault(): assert False
"""
SKIPPED_MODULE = "import pytest\npytest.importorskip('no_such_module')\ndef test_never(): pass\n"


@pytest.fixture
def inner(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """Return a pytester with the plugins of this project."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "tests"))
    monkeypatch.delenv("CI", raising=False)
    pytester.makepyfile(conftest="pytest_plugins = ['plugins.no_skips', 'plugins.results']")
    return pytester


def run(inner: pytest.Pytester) -> pytest.RunResult:
    return inner.runpytest_subprocess("-p", "no:cacheprovider", "--results=out/results.json")


def test_a_missing_part_is_skipped_with_the_command_that_installs_it(inner: pytest.Pytester) -> None:
    inner.makepyfile(test_it=SKIPPING)
    run(inner).assert_outcomes(passed=1, skipped=2, xfailed=1)
    found = json.loads((inner.path / "out" / "results.json").read_text())
    assert found["folders"]["test_it.py"] | {"seconds": 0} == {"passed": 1, "failed": 0, "skipped": 2, "xfailed": 1, "seconds": 0}
    fix = "apt-get install --yes --no-install-recommends redis-server"
    assert {"test": "test_it.py::test_needs_a_part", "reason": f"no-such-command is not installed; fix: {fix}"} in found["skips"]


def test_with_ci_every_skip_of_a_test_fails(inner: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    inner.makepyfile(test_it=SKIPPING)
    result = run(inner)
    result.assert_outcomes(passed=1, failed=1, errors=1, xfailed=1)
    result.stdout.fnmatch_lines(["*which CI=true does not allow: no-such-command is not installed*"])


def test_with_ci_a_skipped_module_fails(inner: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    inner.makepyfile(test_module=SKIPPED_MODULE)
    run(inner).assert_outcomes(skipped=1)
    monkeypatch.setenv("CI", "true")
    run(inner).assert_outcomes(errors=1)
    found = json.loads((inner.path / "out" / "results.json").read_text())
    assert found["folders"]["test_module.py"]["failed"] == 1


def test_an_installed_part_returns_its_path() -> None:
    assert need("sh", debian="redis-server").endswith("/sh")


def test_a_part_that_is_not_listed_for_installation_is_an_error() -> None:
    with pytest.raises(AssertionError, match="it will not be installed"):
        need("sh", debian="not-on-the-list")
