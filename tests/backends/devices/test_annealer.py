import dimod
import pytest

from qtide.backends.devices.annealer import Annealer
from qtide.backends.payloads.payload import PayloadRefused


def test_the_annealer_has_limits() -> None:
    with pytest.raises(PayloadRefused, match="takes 10000 variables at most; the model has 10001"):
        Annealer().check(dimod.BinaryQuadraticModel(10_001, "SPIN"))
    with pytest.raises(PayloadRefused, match="takes 1 to 1000000 shots, not 0"):
        Annealer().solve(dimod.BinaryQuadraticModel(1, "SPIN"), shots=0, seed=0)
