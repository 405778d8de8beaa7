"""Random circuits as IQM's own package transpiles and sends them to its five-qubit star.

Prints for each, as JSON, the run request and Qiskit's probability of each bit string.
"""

import json
from typing import Any

from iqm.iqm_client import (  # type: ignore[import-not-found]  # in an environment of its own
    CircuitJobDefinition,
)
from iqm.qiskit_iqm import (  # type: ignore[import-not-found]
    IQMFakeAdonis,
    transpile_to_IQM,
)
from iqm.qiskit_iqm.iqm_provider import IQMBackend  # type: ignore[import-not-found]
from pydantic import TypeAdapter
from qiskit.circuit.random import random_circuit
from qiskit.quantum_info import Statevector

CIRCUITS = 8


def request(seed: int) -> dict[str, Any]:
    circuit = random_circuit(4, 4, max_operands=2, seed=seed)
    likely = Statevector(circuit).probabilities_dict()
    circuit.measure_all()
    star = IQMFakeAdonis()
    native = transpile_to_IQM(circuit, star, seed_transpiler=seed)
    names = {index: star.index_to_qubit_name(index) for index in range(star.num_qubits)}
    sent = CircuitJobDefinition(circuits=[IQMBackend.serialize_circuit(star, native, names)])
    words = TypeAdapter(CircuitJobDefinition).dump_json(sent).decode()
    return {"request": words, "likely": {bits: float(one) for bits, one in likely.items()}}


if __name__ == "__main__":
    print(json.dumps([request(seed) for seed in range(CIRCUITS)]))
