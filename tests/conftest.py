"""What all tests share: fixtures of Slurm, its marker, and the profiles of property-based tests."""

import os
import sys
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = [
    "tests.backends.slurm.fixtures",
    "tests.service.admission.fixtures",
    "tests.browser",
]

# set in many containers; but the tests start hundreds of processes, which would all compile anew
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

common = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("default", common, max_examples=100, derandomize=True)
settings.register_profile("soak", common, max_examples=10_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


@pytest.fixture(autouse=True)
def search_path() -> Iterator[None]:
    """Loading a program lets Python search its folder; the next test, and its agents, do not."""
    before = sys.path.copy()
    yield
    sys.path[:] = before


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs Slurm's packages, or root: `-m "not slurm"` is for a laptop."""
    for item in items:
        if "packages" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slurm)
