"""A real munged, and a real Slurm with real users, for the tests of admission."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from qtide import box
from tests.service.admission.munged import Munged
from tests.service.admission.site import Site


@pytest.fixture(scope="session")
def munged(packages: None) -> Iterator[Munged]:
    """A munge daemon with its own key."""
    with Munged.started() as daemon:
        yield daemon


@pytest.fixture
def other_munged(packages: None) -> Iterator[Munged]:
    """One that does not share the key, and that a test may stop."""
    with Munged.started() as daemon:
        yield daemon


@pytest.fixture(scope="session")
def whole_site(packages: None) -> Iterator[Site]:
    folder = Path(tempfile.mkdtemp(prefix="qtide-box-"))
    folder.chmod(0o755)  # jobs of other users read it
    try:
        # munge proves callers to the service, whatever Slurm itself uses
        box.up(folder, nodes=1, qpus=2, service="http://127.0.0.1:9", auth="munge")
        yield Site(folder)
    finally:
        box.down(folder)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def site(whole_site: Site) -> Iterator[Site]:
    """A box that the tests share; every test leaves its queue empty."""
    yield whole_site
    whole_site.clear()
