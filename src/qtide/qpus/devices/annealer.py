"""A simulated annealer for binary quadratic models, by dwave-samplers."""

from __future__ import annotations

from typing import Any

from qtide.qpus.payload import Burst, PayloadRefused

READS = 100
"""Reads really made; a profile's shots beyond it only take their time."""


class Annealer:
    """Takes `dimod.BinaryQuadraticModel` and gives a `dimod.SampleSet`, best first."""

    name = "annealer"

    def __init__(self, sweeps: int = 200) -> None:
        self._sweeps = sweeps

    def check(self, payload: Any) -> None:
        """Bursts pass; anything else has to be a binary quadratic model with variables."""
        if isinstance(payload, Burst):
            return
        import dimod

        if not isinstance(payload, dimod.BinaryQuadraticModel):
            raise PayloadRefused(
                f"the annealer takes a dimod.BinaryQuadraticModel, not {type(payload).__name__}"
            )
        if payload.num_variables == 0:
            raise PayloadRefused("the annealer was given a model without variables")

    def solve(self, payload: Any, shots: int, seed: int) -> Any:
        """Anneal."""
        if isinstance(payload, Burst):
            return payload.answer
        from dwave.samplers import SimulatedAnnealingSampler

        samples = SimulatedAnnealingSampler().sample(
            payload, num_reads=min(shots, READS), num_sweeps=self._sweeps, seed=seed % 2**31
        )
        return _best_first(samples)


def _best_first(samples: Any) -> Any:
    """Equal samples counted together, in order of energy; timings are left out, as they vary."""
    import dimod
    import numpy as np

    together = samples.aggregate()
    order = np.argsort(together.record.energy, kind="stable")
    return dimod.SampleSet(together.record[order], together.variables, {}, together.vartype)
