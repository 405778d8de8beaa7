"""Our star and IQM's package agree on the meaning of every angle, qubit and key."""

import json
import subprocess
from collections import Counter
from pathlib import Path

from qtide.backends.devices.gate import star
from qtide.backends.payloads.payload import Encoded, decode
from qtide.backends.payloads.shots import Shots
from tests.service.apis.environments import python_with

PROGRAM = Path(__file__).parent / "programs" / "serialise.py"
SHOTS = 50_000


def distribution(shots: Shots) -> dict[str, float]:
    """By the bit strings of the user's circuit: IQM's keys end in the number of the bit."""
    keys = [name for name, _ in shots.registers]
    order = sorted(range(len(keys)), key=lambda at: int(keys[at].rpartition("_")[2]), reverse=True)
    often = Counter("".join(str(value >> at & 1) for at in order) for value in shots.values)
    return {bits: count / len(shots) for bits, count in often.items()}


def test_the_star_does_what_iqm_means() -> None:
    python = python_with("iqm-client[qiskit]==36.0.0")
    run = subprocess.run([python, PROGRAM], stdout=subprocess.PIPE, timeout=300, check=True)
    cases = json.loads(run.stdout)
    assert len(cases) == 8
    for case in cases:
        batch = decode(Encoded("iqm", case["request"].encode()))
        star().check(batch)
        found = distribution(star().solve(batch, SHOTS, seed=1)[0])
        likely = case["likely"]
        apart = sum(abs(found.get(bits, 0) - likely.get(bits, 0)) for bits in found | likely)
        assert apart / 2 < 0.02
