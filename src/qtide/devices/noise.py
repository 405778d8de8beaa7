"""Noise of a superconducting chip: depolarising gates, and read-out errors.

The rates are the medians that IQM publishes for its five-qubit Adonis, in the error profile of
`IQMFakeAdonis` in iqm-client 36 (prx 0.0001 to 0.0054, cz 0.019 to 0.037, read-out 0.018 to 0.056).
"""

from __future__ import annotations

from typing import Any

from qtide.devices.gates import ONE, TWO

ONE_QUBIT_ERROR = 0.0005
TWO_QUBIT_ERROR = 0.034
READ_OUT_ERROR = 0.021


def noise_model() -> Any:
    """The same noise for all qubits, so that it fits a chip of any size."""
    from qiskit_aer.noise import NoiseModel, ReadoutError, depolarizing_error

    model = NoiseModel()
    model.add_all_qubit_quantum_error(depolarizing_error(ONE_QUBIT_ERROR, 1), list(ONE))
    model.add_all_qubit_quantum_error(depolarizing_error(TWO_QUBIT_ERROR, 2), list(TWO))
    right = 1 - READ_OUT_ERROR
    readout = ReadoutError([[right, READ_OUT_ERROR], [READ_OUT_ERROR, right]])
    model.add_all_qubit_readout_error(readout)
    return model
