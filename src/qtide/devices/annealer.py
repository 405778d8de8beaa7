"""A simulated annealer for binary quadratic models, by dwave-samplers."""

from __future__ import annotations

from typing import Any

from qtide.devices.device import Device
from qtide.devices.models import best_first, check_model

READS = 100
"""The most reads actually computed; shots beyond that only take their time."""

MOST_VARIABLES = 10_000


class Annealer(Device):
    """Takes `dimod.BinaryQuadraticModel` and gives a `dimod.SampleSet`, best first."""

    name = "annealer"
    most_shots = 1_000_000
    usual_profile = "annealer"
    light = True

    def __init__(self, sweeps: int = 200) -> None:
        self._sweeps = sweeps

    def properties(self) -> dict[str, Any]:
        """Formats and limits."""
        most = {"shots": self.most_shots, "variables": MOST_VARIABLES}
        return {"formats": ["bqm", "burst"], "most": most}

    def warm_up(self) -> None:
        """Import the sampler."""
        import dwave.samplers  # noqa: F401 - only to import it

    def _check(self, payload: Any) -> None:
        check_model(payload, "annealer", MOST_VARIABLES)

    def _solve(self, payload: Any, shots: int, seed: int) -> Any:
        from dwave.samplers import SimulatedAnnealingSampler

        samples = SimulatedAnnealingSampler().sample(
            payload, num_reads=min(shots, READS), num_sweeps=self._sweeps, seed=seed % 2**31
        )
        return best_first(samples)
