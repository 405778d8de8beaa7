"""If no network can be cut, or no newer Slurm be fetched, one line says what is left out."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings

from qtide.box.release import Release
from tests.backends.slurm.fixtures import unavailable
from tests.backends.slurm.network import refusal

ASK = "from tests.backends.slurm.network import refusal; print(refusal())"


def test_what_is_left_out_is_said() -> None:
    why = refusal()
    if why:
        warnings.warn(f"the tests on cut wires were left out: {why}", stacklevel=1)
    assert not why or "network" in why


def test_without_a_newer_slurm_it_is_said() -> None:
    why = unavailable()
    if why:
        warnings.warn(f"the tests on the newest Slurm were left out: {why}", stacklevel=1)
    assert why == "" or ("apt" in why or "debian" in why)


def test_without_the_right_to_it_a_machine_says_why() -> None:
    rights = ["--inh-caps=-net_admin", "--bounding-set=-net_admin"]
    drop = [Release().program("setpriv"), *rights] if os.geteuid() == 0 else []
    done = subprocess.run(
        [*drop, sys.executable, "-c", ASK], capture_output=True, text=True, check=True, timeout=60
    )
    assert "network" in done.stdout
    assert "by root alone" in done.stdout or "not permitted" in done.stdout
