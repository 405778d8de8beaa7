from typing import Any

import pytest

from qtide.backends.devices.profile import Profile
from qtide.backends.payloads.formats.iqm import IqmBatch, IqmCircuit

PROFILE = Profile("round", payload_s=1, shot_s=0.01, shots=100)


@pytest.mark.parametrize(
    "batch", [["OPENQASM 3.0;"] * 3, IqmBatch((IqmCircuit("empty", ()),) * 3)], ids=["list", "IQM"]
)
def test_every_circuit_of_a_batch_has_its_shots(batch: Any) -> None:
    assert PROFILE.seconds(batch) == 4
    assert PROFILE.seconds(batch, shots=10) == pytest.approx(1.3)
    assert PROFILE.seconds("OPENQASM 3.0;") == 2
