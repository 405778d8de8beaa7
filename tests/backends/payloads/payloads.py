"""Random payloads of every kind."""

import math
from typing import Any

import dimod
from hypothesis import strategies as st
from qiskit import QuantumCircuit

from qtide.backends.payloads.formats.iqm import IqmBatch, IqmCircuit, Operation
from qtide.backends.payloads.payload import Burst

finite = st.floats(allow_nan=False, allow_infinity=False)
biases = st.floats(-1e6, 1e6)
names = st.text(max_size=8)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | finite | names,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=10,
)
bursts = st.builds(Burst, st.none() | st.floats(0, 1e9), json_values)


@st.composite
def models(draw: Any) -> dimod.BinaryQuadraticModel:
    variables = draw(st.lists(st.integers(1 - 2**63, 2**63 - 1) | names, unique=True, max_size=6))
    model = dimod.BinaryQuadraticModel(draw(st.sampled_from(["SPIN", "BINARY"])))
    model.offset = draw(biases)
    for variable in variables:
        model.add_linear(variable, draw(biases))
    for number, first in enumerate(variables):
        for second in variables[number + 1 :]:
            if draw(st.booleans()):
                model.add_quadratic(first, second, draw(biases))
    return model


@st.composite
def circuits(draw: Any) -> QuantumCircuit:
    qubits = draw(st.integers(1, 4))
    circuit = QuantumCircuit(qubits, qubits)
    for _ in range(draw(st.integers(0, 8))):
        qubit = draw(st.integers(0, qubits - 1))
        circuit.rx(draw(st.floats(-math.pi, math.pi)), qubit)
        if qubit:
            circuit.cx(qubit - 1, qubit)
    circuit.measure(range(qubits), range(qubits))
    return circuit


qubits = st.sampled_from(["QB1", "QB2", "QB3", "QB4", "QB5"])
angles = st.fixed_dictionaries({"angle": finite, "phase": finite})
pairs = st.lists(qubits, min_size=2, max_size=2, unique=True).map(tuple)
several = st.lists(qubits, min_size=1, unique=True).map(tuple)
implementations = st.none() | names
operations = (
    st.builds(Operation, st.just("prx"), st.tuples(qubits), angles, implementations)
    | st.builds(Operation, st.just("cz"), pairs)
    | st.builds(Operation, st.sampled_from(["barrier", "reset"]), several)
)


@st.composite
def iqm_circuits(draw: Any) -> IqmCircuit:
    gates = draw(st.lists(operations, max_size=5))
    keys = draw(st.lists(names, min_size=1, max_size=3, unique=True))
    measured = [Operation("measure", draw(several), {"key": key}) for key in keys]
    metadata = draw(st.none() | st.dictionaries(names, json_values, max_size=2))
    return IqmCircuit(draw(names), (*gates, *measured), metadata)


mappings = st.none() | st.just({"a": "QB3", "b": "QB1"})
iqm_batches = st.builds(
    IqmBatch, st.lists(iqm_circuits(), min_size=1, max_size=3).map(tuple), mappings
)
