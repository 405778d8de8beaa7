"""A simulated annealer for binary quadratic models, based on dwave-samplers."""

from __future__ import annotations

from typing import Any

from qtide.backends.devices.device import Device
from qtide.backends.devices.profile import Cost
from qtide.backends.payloads.payload import PayloadRefused

READS = 100
"""The most reads actually computed; further shots only take time."""

MOST_VARIABLES = 10_000

BASE_S, VISIT_S = 2e-3, 5e-10
"""Seconds that the sampler takes per model and per visit of a variable or a coupling."""


class Annealer(Device):
    """Takes a `dimod.BinaryQuadraticModel` and returns a `dimod.SampleSet`, best first."""

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

    def cost(self, payload: Any) -> Cost:
        """Each sweep of each read visits all variables and couplings."""
        visits = payload.num_variables + 2 * payload.num_interactions
        return Cost(BASE_S + VISIT_S * READS * self._sweeps * visits)

    def warm_up(self) -> None:
        """Import the sampler."""
        import dwave.samplers  # noqa: F401 - only to import it

    def _check(self, payload: Any) -> None:
        check_model(payload, "annealer", MOST_VARIABLES)

    def _solve(self, payload: Any, shots: int, seed: int) -> Any:
        import dimod
        from dwave.samplers import SimulatedAnnealingSampler

        if payload.num_variables == 0:  # the sampler would warn about it
            reads = [min(shots, READS)]
            return dimod.SampleSet.from_samples_bqm(([[]], []), payload, num_occurrences=reads)
        samples = SimulatedAnnealingSampler().sample(
            payload, num_reads=min(shots, READS), num_sweeps=self._sweeps, seed=seed % 2**31
        )
        return best_first(samples)


def check_model(payload: Any, device: str, most: int) -> None:
    """Refuse anything but a binary quadratic model with at most `most` variables."""
    import dimod

    if not isinstance(payload, dimod.BinaryQuadraticModel):
        kind = type(payload).__name__
        raise PayloadRefused(f"the {device} takes a dimod.BinaryQuadraticModel, not {kind}")
    if payload.num_variables > most:
        has = payload.num_variables
        raise PayloadRefused(f"the {device} takes {most} variables at most; the model has {has}")


def best_first(samples: Any) -> Any:
    """Merge equal samples and sort them by energy; drop timings, as these vary between runs."""
    import dimod
    import numpy as np

    together = samples.aggregate()
    order = np.argsort(together.record.energy, kind="stable")
    return dimod.SampleSet(together.record[order], together.variables, {}, together.vartype)
