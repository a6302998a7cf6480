"""Shared by all tests: the number of Hypothesis examples (`effort` has the profiles), and the plugins."""

from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis.database import DirectoryBasedExampleDatabase

from effort import PROFILE

pytest_plugins = ["pytester", "plugins.kafka", "plugins.no_skips", "plugins.results", "plugins.spark", "plugins.tiers"]

# Only a search draws new examples, so that a change is tested on the same ones. Failures found by a search become an `@example`.
_FIXED = settings(derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.register_profile("fast", _FIXED, max_examples=10)
for name in ("full", "long", "soak"):
    settings.register_profile(name, _FIXED, max_examples=60)
_FOUND = DirectoryBasedExampleDatabase(Path(__file__).parent.parent / ".hypothesis" / "examples")
settings.register_profile("search", _FIXED, derandomize=False, database=_FOUND, max_examples=60)
settings.load_profile(PROFILE)
