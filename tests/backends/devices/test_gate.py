from math import pi
from typing import Any

import pytest
from qiskit import ClassicalRegister, QuantumCircuit, QuantumRegister
from qiskit.circuit import Clbit, Gate, Parameter, Qubit
from qiskit.circuit.library.standard_gates import get_standard_gate_name_mapping

from qtide.backends.devices.gate import GateDevice, gate, star
from qtide.backends.payloads.formats.iqm import IqmBatch, IqmCircuit, Operation
from qtide.backends.payloads.payload import Encoded, PayloadRefused, decode, encode
from qtide.backends.payloads.shots import Shots

QUBITS = ("QB1", "QB2", "QB3", "QB4", "QB5")
MEASURE = Operation("measure", QUBITS, {"key": "m"})


def prx(qubit: str, angle: float, phase: float) -> Operation:
    return Operation("prx", (qubit,), {"angle": angle, "phase": phase})


def iqm(*operations: Operation, mapping: dict[str, str] | None = None) -> IqmBatch:
    return IqmBatch((IqmCircuit("circuit", operations),), mapping)


def half(qubit: str, sign: int = 1) -> Operation:
    """A quarter turn around y: with another one on each side, a cz is a cx."""
    return prx(qubit, sign * pi / 2, pi / 2)


def ghz() -> IqmBatch:
    around = [q for q in QUBITS if q != "QB3"]
    entangle = [[half(q, -1), Operation("cz", ("QB3", q)), half(q)] for q in around]
    return iqm(half("QB3"), *(one for ops in entangle for one in ops), MEASURE)


def run(device: GateDevice, payload: Any, shots: int = 1000) -> list[Shots]:
    device.check(payload)
    answers: list[Shots] = device.solve(payload, shots, seed=7)
    return answers


def test_the_star_entangles_its_five_qubits() -> None:
    (shots,) = run(star(), ghz())
    assert set(shots.counts()) == {"00000", "11111"}
    assert len(shots.rows("m")) == 1000


def test_answers_repeat_themselves_and_depend_on_the_seed() -> None:
    for device in (star(), star(noisy=True)):
        assert device.solve(ghz(), 100, seed=1) == device.solve(ghz(), 100, seed=1)
        assert device.solve(ghz(), 100, seed=1) != device.solve(ghz(), 100, seed=2)


def test_noise_is_seen_but_does_not_drown_the_answer() -> None:
    (shots,) = run(star(noisy=True), ghz(), shots=10_000)
    right = shots.counts()["00000"] + shots.counts()["11111"]
    assert 7_000 < right < 9_500


def test_read_out_alone_errs_at_its_rate() -> None:
    (shots,) = run(star(noisy=True), iqm(MEASURE), shots=100_000)
    wrong = sum(value & 1 for value in shots.values)
    assert 1_900 < wrong < 2_300


def test_every_measurement_key_is_a_register() -> None:
    operations = (prx("QB2", pi, 0), Operation("measure", ("QB2", "QB1"), {"key": "ü 1"}))
    (shots,) = run(star(), iqm(*operations, Operation("measure", ("QB2",), {"key": "m"})), 3)
    assert shots.registers == (("ü 1", 2), ("m", 1))
    assert shots.rows("ü 1") == [[1, 0]] * 3
    assert shots.counts() == {"1 01": 3}


def test_logical_qubits_are_mapped() -> None:
    measure = Operation("measure", ("a", "b"), {"key": "m"})
    batch = iqm(
        prx("a", pi, 0), Operation("cz", ("a", "b")), measure, mapping={"a": "QB3", "b": "QB1"}
    )
    (shots,) = run(star(), batch, 2)
    assert shots.rows("m") == [[1, 0]] * 2


def test_measured_bits_decide_and_qubits_are_reset() -> None:
    measure = Operation("measure", ("QB1",), {"key": "first", "feedback_key": "f"})
    feedback = {"feedback_key": "f", "feedback_qubit": "QB1", "angle": pi, "phase": 0.0}
    (shots,) = run(
        star(),
        iqm(
            half("QB1"),
            measure,
            Operation("cc_prx", ("QB2",), feedback),
            Operation("reset", ("QB1",)),
            Operation("delay", ("QB1",), {"duration": 1e-6}),
            Operation("barrier", QUBITS),
            MEASURE,
        ),
    )
    assert set(shots.counts()) == {"00000 0", "00010 1"}


@pytest.mark.parametrize(
    ("batch", "sentence"),
    [
        (iqm(prx("QB6", 1, 0), MEASURE), "circuit 0, instruction 0: there is no qubit 'QB6'"),
        (iqm(MEASURE, Operation("cz", ("QB1", "QB2"))), "instruction 1: QB1 and QB2 are not conn"),
        (iqm(MEASURE, Operation("move", ("QB1", "QB2"))), "the device has no move; it has prx"),
        (iqm(prx("QB1", 1, 0)), "circuit 0: nothing is measured"),
        (iqm(MEASURE, mapping={"QB1": "CR1"}), "qubit_mapping: the chip has no qubit 'CR1'"),
        (iqm(MEASURE, mapping={"QB1": "QB1"}), "there is no qubit 'QB2'"),
        (IqmBatch(()), "takes 1 to 1000 circuits, not 0"),
        (IqmBatch((IqmCircuit("", (MEASURE,)),) * 1001), "1 to 1000 circuits, not 1001"),
        (iqm(*[MEASURE] * 10_001), "circuit 0: the circuit has more than 10000 instructions"),
    ],
)
def test_iqm_circuits_that_do_not_fit_are_refused(batch: IqmBatch, sentence: str) -> None:
    with pytest.raises(PayloadRefused, match=sentence):
        star().check(batch)


def bell() -> QuantumCircuit:
    circuit = QuantumCircuit(2, 2)
    circuit.h(0)
    circuit.cx(0, 1)
    circuit.measure([0, 1], [0, 1])
    return circuit


def test_qiskit_circuits_and_openqasm_give_the_same() -> None:
    text = (
        'OPENQASM 3.0; include "stdgates.inc"; qubit[2] q; bit[2] c;'
        "h q[0]; cx q[0], q[1]; c = measure q;"
    )
    device = gate(2)
    assert run(device, bell()) == run(device, [bell()]) == run(device, text) == run(device, [text])
    assert set(run(device, bell())[0].counts()) == {"00", "11"}


def test_a_batch_has_an_answer_for_each_circuit() -> None:
    flipped = QuantumCircuit(QuantumRegister(1), ClassicalRegister(1, "d"))
    flipped.x(0)
    flipped.measure(0, 0)
    first, second = run(gate(2), [bell(), flipped])
    assert first.registers == (("c", 2),)
    assert (second.registers, second.counts()) == ((("d", 1),), {"1": 1000})


def test_branches_are_run() -> None:
    circuit = QuantumCircuit(2, 2)
    circuit.h(0)
    circuit.measure(0, 0)
    with circuit.if_test((circuit.clbits[0], 1)) as otherwise:
        circuit.x(1)
    with otherwise:
        circuit.reset(1)
    circuit.measure(1, 1)
    assert set(run(gate(2), circuit)[0].counts()) == {"00", "11"}


def test_bits_outside_of_registers_are_one() -> None:
    circuit = QuantumCircuit([Qubit(), Clbit(), Clbit()])
    circuit.x(0)
    circuit.measure(0, 1)
    (shots,) = run(gate(1), circuit, 5)
    assert (shots.registers, shots.counts()) == ((("", 2),), {"10": 5})


def changed(*, clbits: int = 1, qubits: int = 2, measured: bool = True, **gates: Any) -> Any:
    circuit = QuantumCircuit(qubits, clbits)
    for name, arguments in gates.items():
        getattr(circuit, name)(*arguments)
    if measured:
        circuit.measure(0, 0)
    return circuit


def endless() -> QuantumCircuit:
    circuit = changed()
    with circuit.while_loop((circuit.clbits[0], 0)):
        circuit.x(0)
    return circuit


def nested(depth: int) -> QuantumCircuit:
    circuit = changed(x=(0,))
    for _ in range(depth):
        outer = changed()
        outer.if_test((outer.clbits[0], 1), circuit, [0, 1], [0])
        circuit = outer
    return circuit


def from_qpy(old: bytes, new: bytes, circuit: QuantumCircuit) -> QuantumCircuit:
    """A circuit that Qiskit itself would not build, but reads."""
    data = encode([circuit]).data
    assert data.count(old) == 1
    made: QuantumCircuit = decode(Encoded("qpy", data.replace(old, new)))[0]
    return made


def long_branches() -> QuantumCircuit:
    circuit = changed()
    for _ in range(2):
        with circuit.if_test((circuit.clbits[0], 1)):
            for _ in range(5_000):
                circuit.x(0)
    return circuit


def shuffled() -> QuantumCircuit:
    bits = [Clbit(), Clbit()]
    circuit = QuantumCircuit([Qubit()], bits, ClassicalRegister(bits=bits[::-1]))
    circuit.measure(0, 0)
    return circuit


@pytest.mark.parametrize(
    ("circuit", "sentence"),
    [
        (changed(qubits=4), "circuit 0: it has 4 qubits, the device 3"),
        (changed(rx=(Parameter("angle"), 0)), "circuit 0: parameters have no value: 'angle'"),
        (changed(rx=(float("nan"), 0)), "instruction 0: a finite number is expected, not nan"),
        (changed(delay=(float("inf"), 0, "s")), "a finite number is expected, not inf"),
        (changed(measured=False), "circuit 0: nothing is measured"),
        (changed(append=(Gate("tea", 1, []), [0])), "instruction 0: the device has no 'tea'"),
        (changed(append=(Gate("x", 2, []), [0, 1])), "x has 2 qubits and 0 parameters"),
        (changed(qubits=3, cx=(0, 2)), "instruction 0: QB1 and QB3 are not connected"),
        (changed(qubits=3, ccx=(0, 1, 2)), "the device has no 'ccx'"),
        (changed(add_var=("v", True)), "classical variables are not supported"),
        (long_branches(), "instruction 2: the circuit has more than 10000 instructions"),
        (
            from_qpy(b"q\x00\x00\x00\x00q\x00\x00\x00\x01", b"q\x00\x00\x00\x00" * 2, bell()),
            "instruction 1: cx has 1 qubits and 0 parameters",
        ),
        (endless(), "the device has no 'while_loop'"),
        (nested(11), "the device has no 'if_else'"),
        (shuffled(), "every classical bit has to be in one register, in order"),
        ([], "takes 1 to 1000 circuits, not 0"),
        ([bell(), 3], "the gate takes circuits, not int"),
    ],
)
def test_circuits_that_do_not_fit_are_refused(circuit: Any, sentence: str) -> None:
    device = gate(3, [[0, 1], [1, 2]])
    with pytest.raises(PayloadRefused, match=sentence):
        device.check(circuit)


def test_the_star_takes_what_iqm_makes_its_own_gates_of() -> None:
    star().check(changed(x=(0,), ry=(0.5, 1), r=(0.1, 0.2, 0)))
    with pytest.raises(PayloadRefused, match="has no 'h'; transpile for r, rx, ry, x, y, cz"):
        star().check(bell())


def test_shots_have_a_limit() -> None:
    with pytest.raises(PayloadRefused, match="the star takes 1 to 100000 shots, not 100001"):
        star().solve(ghz(), 100_001, seed=0)


@pytest.mark.parametrize("name", gate(5).properties()["gates"])
def test_every_gate_it_names_is_run(name: str) -> None:
    from qiskit.circuit.library import get_standard_gate_name_mapping

    one = get_standard_gate_name_mapping()[name]
    circuit = QuantumCircuit(3, 1)
    circuit.append(type(one)(*[0.3] * len(one.params)), range(one.num_qubits))
    circuit.measure(0, 0)
    (shots,) = run(gate(3), circuit, 20)
    assert len(shots) == 20


def test_a_noisy_device_emulates_every_gate_that_it_offers() -> None:
    device, known = gate(qubits=2, noisy=True), get_standard_gate_name_mapping()
    batch = []
    for name in device.properties()["gates"]:
        circuit = QuantumCircuit(2, 2)
        each = known[name]
        circuit.append(type(each)(*[0.3] * len(each.params)), range(each.num_qubits))
        circuit.measure([0, 1], [0, 1])
        batch.append(circuit)
    assert len(run(device, batch, shots=10)) == len(batch) > 20
    rotation = QuantumCircuit(2, 1)
    rotation.crz(0.3, 0, 1)
    rotation.measure(1, 0)
    with pytest.raises(PayloadRefused, match="the device has no 'crz'"):
        device.check([rotation])
