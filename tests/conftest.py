"""Profiles of the property-based tests: hundreds of cases by default, 10,000 by `make soak`."""

import os

from hypothesis import HealthCheck, settings

common = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("default", common, max_examples=200, derandomize=True)
settings.register_profile("soak", common, max_examples=10_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
