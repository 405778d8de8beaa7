"""What devices for binary quadratic models share: their check, and the order of samples."""

from __future__ import annotations

from typing import Any

from qtide.payloads.payload import PayloadRefused


def check_model(payload: Any, device: str, most: int) -> None:
    """Refuse all but a binary quadratic model with some variables, and not too many."""
    import dimod

    if not isinstance(payload, dimod.BinaryQuadraticModel):
        kind = type(payload).__name__
        raise PayloadRefused(f"the {device} takes a dimod.BinaryQuadraticModel, not {kind}")
    if payload.num_variables == 0:
        raise PayloadRefused(f"the {device} was given a model without variables")
    if payload.num_variables > most:
        has = payload.num_variables
        raise PayloadRefused(f"the {device} takes {most} variables at most; the model has {has}")


def best_first(samples: Any) -> Any:
    """Equal samples merged, in order of energy; without timings, since these vary."""
    import dimod
    import numpy as np

    together = samples.aggregate()
    order = np.argsort(together.record.energy, kind="stable")
    return dimod.SampleSet(together.record[order], together.variables, {}, together.vartype)
