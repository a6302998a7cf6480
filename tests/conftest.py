"""What every test shares: how hard Hypothesis tries, and what a skip means."""

import os

from hypothesis import HealthCheck, settings

pytest_plugins = ["pytester", "plugins.kafka", "plugins.no_skips", "plugins.results", "plugins.spark"]

# MILEPOST_TEST_PROFILE: `fast` for the inner loop, `full` for `make test`. With CI=true every run tries the same examples, so
# that a change is judged by what it changes; everyone else's runs go on looking elsewhere.
_SAME_EACH_TIME = os.environ.get("CI") == "true"
_SLOW_IS_FINE = [HealthCheck.too_slow]
settings.register_profile("fast", max_examples=50, deadline=None, suppress_health_check=_SLOW_IS_FINE)
settings.register_profile(
    "full",
    max_examples=60 if _SAME_EACH_TIME else 500,  # the same again find nothing new, however many there are
    derandomize=_SAME_EACH_TIME,
    deadline=None,
    suppress_health_check=_SLOW_IS_FINE,
    print_blob=True,
)
settings.load_profile(os.environ.get("MILEPOST_TEST_PROFILE", "fast"))
