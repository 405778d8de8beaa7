"""The service as a Qiskit backend: transpile for it, run on it, fetch results from any process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from hashlib import sha256
from io import BytesIO
from typing import Any, NamedTuple

from qiskit import QuantumCircuit, qpy, transpile
from qiskit.circuit import Delay, IfElseOp, Parameter
from qiskit.circuit.library.standard_gates import get_standard_gate_name_mapping
from qiskit.providers import BackendV2, JobStatus, JobV1, Options
from qiskit.result import Result
from qiskit.result.models import ExperimentResult, ExperimentResultData
from qiskit.transpiler import Target

from qtide.backends.client.client import OVER, Client, RemoteTask
from qtide.backends.payloads.payload import circuits_in
from qtide.backends.payloads.shots import Shots
from qtide.core.errors import UsageError
from qtide.core.version import __version__

ALWAYS = ("id", "measure", "reset")
"""Operations that every device takes without listing them."""

Loci = dict[tuple[int, ...], None]


def target_of(device: dict[str, Any]) -> Target:
    """The Qiskit target of a device that takes Qiskit circuits."""
    properties = device["properties"]
    if "qpy" not in properties.get("formats", ()):
        raise UsageError(
            f"the device {device['name']!r} takes no Qiskit circuits; "
            f"it takes: {', '.join(properties.get('formats', ())) or 'nothing, as it is down'}"
        )
    size = len(properties["qubits"])
    target = Target(f"{device['name']} of qtide", num_qubits=size)
    known = get_standard_gate_name_mapping()
    singles: Loci = {(qubit,): None for qubit in range(size)}
    pairs = _pairs(properties)
    for name in dict.fromkeys((*properties["gates"], *ALWAYS)):
        gate = known[name]
        loci = {1: singles, 2: pairs}.get(gate.num_qubits)
        target.add_instruction(gate, None if loci is None else dict(loci), name=name)
    target.add_instruction(Delay(Parameter("time")), dict(singles))
    target.add_instruction(IfElseOp, name="if_else")
    return target


def _pairs(properties: dict[str, Any]) -> Loci | None:
    """Pairs of connected qubits, in both directions; None if fully connected."""
    place = {name: number for number, name in enumerate(properties["qubits"])}
    ways = [(place[one], place[other]) for one, other in properties["connections"]]
    loci: Loci = dict.fromkeys([*ways, *((other, one) for one, other in ways)])
    return None if len(loci) == len(place) * (len(place) - 1) else loci


STATUS = {
    "queued": JobStatus.QUEUED,
    "running": JobStatus.RUNNING,
    "done": JobStatus.DONE,
    "failed": JobStatus.ERROR,
    "cancelled": JobStatus.CANCELLED,
}


class Label(NamedTuple):
    """What identifies a circuit's results."""

    name: str
    metadata: dict[str, Any]


class CircuitJob(JobV1):  # type: ignore[misc]  # Qiskit has no types
    """One task; any process of the same user can get it with `Backend.retrieve_job`.

    Only the process that submitted the circuits knows their names and metadata; others identify
    the results by number.
    """

    def __init__(self, backend: BackendV2, task: RemoteTask, labels: list[Label]) -> None:
        super().__init__(backend, task.id)
        self._task = task
        self._labels = labels

    def submit(self) -> None:
        """Do nothing: a job is already submitted when it is created."""

    def status(self) -> JobStatus:
        """The current status."""
        if self._task.state not in OVER:
            self._task.refresh()
        return STATUS[self._task.state]

    def result(self, timeout: float | None = None) -> Result:
        """Wait for the result; raises an error if the task failed."""
        answers = self.answers(timeout)
        labels = self._labels or [Label(f"circuit-{i}", {}) for i in range(len(answers))]
        return Result(
            backend_name=self.backend().name,
            backend_version=__version__,
            job_id=self.job_id(),
            success=True,
            results=[_experiment(*pair) for pair in zip(answers, labels, strict=True)],
        )

    def answers(self, timeout: float | None = None) -> list[Shots]:
        """Wait for the shots of each circuit."""
        answers: list[Shots] = self._task.result(timeout)
        return answers

    def cancel(self) -> bool:
        """Cancel the task; False if it had already ended."""
        if self._task.refresh().state in OVER:
            return False
        self._task.cancel()
        return True

    def queue_position(self) -> int | None:
        """How many tasks are ahead of this one, if it is queued."""
        position: int | None = self._task.refresh().response.get("position")
        return position

    def status_message(self) -> str:
        """Where the job stands, and why."""
        return "; ".join(self._task.why())

    def error_message(self) -> str | None:
        """Why the task failed."""
        message: str | None = self._task.refresh().response["error"]
        return message


def _experiment(shots: Shots, label: Label) -> ExperimentResult:
    memory = [hex(value) for value in shots.values]
    header = {
        "name": label.name,
        "metadata": label.metadata,
        "creg_sizes": [[name, width] for name, width in shots.registers if name],
        "memory_slots": sum(width for _, width in shots.registers),
    }
    data = ExperimentResultData(counts=dict(Counter(memory)), memory=memory)
    return ExperimentResult(len(memory), True, data, header=header)


KNOWN = ("shots", "seed_simulator", "memory")
"""Accepted options; `memory` has no effect, since every shot is kept anyway."""
CLASS = "any:"
"""Before the kind, in the name of a class of devices."""
MOST_FITTED = 64
"""How many transpiled circuits a backend remembers."""


class Backend(BackendV2):  # type: ignore[misc]  # Qiskit has no types
    """One device that takes Qiskit circuits."""

    def __init__(self, client: Client, device: str) -> None:
        found = client.started_device(device)
        super().__init__(
            name=device,
            description=f"{found['kind']} of qtide",
            backend_version=__version__,
        )
        self._client = client
        self._target = target_of(found)
        self.formats: list[str] = found["properties"]["formats"]
        """The formats of payloads that the device takes."""
        self.most: dict[str, int] = found["properties"]["most"]
        """The limits on `shots`, `circuits` and so on of one task."""
        self.simulator: bool = found["properties"].get("emulated", False)
        """Whether it is emulated; others are held to the limits of IBM's by qiskit-ibm-runtime."""
        self.session: str | None = None
        """The id of the session in which its tasks run, if they do."""
        self._fitted: dict[str, QuantumCircuit] = {}

    @property
    def target(self) -> Target:
        """Which gate can act on which qubits."""
        return self._target

    @property
    def max_circuits(self) -> int | None:
        """The most circuits that a task may have."""
        return self.most.get("circuits")

    @classmethod
    def _default_options(cls) -> Options:
        """If no shots are given, the device chooses their number."""
        return Options(shots=None, seed_simulator=None)

    def run(
        self,
        run_input: QuantumCircuit | Sequence[QuantumCircuit],
        *,
        name: str = "",
        priority: int = 0,
        max_wait: float | None = None,
        key: str | None = None,
        **options: Any,
    ) -> CircuitJob:
        """Submit the circuits as one task; options are `shots` and `seed_simulator`.

        The same `key` gives the same task, so a program that was killed finds its job again.
        """
        circuits = [run_input] if isinstance(run_input, QuantumCircuit) else list(run_input)
        chosen = dict(self.options) | options
        for option in chosen.keys() - KNOWN:
            raise UsageError(f"a qtide backend has no option {option!r}; it has {', '.join(KNOWN)}")
        words = {"name": name, "priority": priority, "max_wait": max_wait, "key": key}
        task = self.submit(circuits, chosen["shots"], chosen["seed_simulator"], **words)
        return CircuitJob(self, task, [Label(one.name, one.metadata or {}) for one in circuits])

    def submit(self, payload: Any, shots: int | None, seed: int | None, **words: Any) -> RemoteTask:
        """Submit any payload that the device takes, such as PUBs, unless its key is known.

        The service compares the bytes that come with a known key. Those of a circuit differ from
        process to process, so here the key decides; only another number of shots or circuits, or
        another device, shows that the key was meant for another task.
        """
        key = words.get("key")
        known = None if key is None else self._client.find(key)
        if known is not None:
            mine: dict[str, Any] = {"size": circuits_in(payload)}
            mine |= {} if shots is None else {"shots": shots}
            mine |= {} if known.response["route"] == self.name else {"device": self.name}
            theirs = {name: known.response[name] for name in mine}
            if theirs != mine:
                was = ", ".join(f"{name} {value}" for name, value in theirs.items())
                raise UsageError(f"the key {key!r} is that of another task ({was}); use another")
            return known
        words |= {"session": self.session} if self.session else {}
        return self._client.submit(payload, self.name, shots=shots, seed=seed, **words)

    def fitted(self, circuit: QuantumCircuit) -> QuantumCircuit:
        """Return the circuit if it fits the device, or transpile it, each circuit only once."""
        if circuit.num_qubits > self._target.num_qubits:
            if self.name.startswith(CLASS):
                return circuit  # the target is the device with the fewest connections
            raise UsageError(  # Qiskit's transpiler may panic
                f"a circuit has {circuit.num_qubits} qubits, the device {self.name!r} has "
                f"{self._target.num_qubits}"
            )
        if _fits(circuit, self._target, range(circuit.num_qubits)):
            return circuit
        file = BytesIO()
        qpy.dump(circuit, file)
        digest = sha256(file.getvalue()).hexdigest()
        if digest not in self._fitted:
            if len(self._fitted) >= MOST_FITTED:
                self._fitted.pop(next(iter(self._fitted)))
            self._fitted[digest] = transpile(circuit, target=self._target, seed_transpiler=0)
        return self._fitted[digest]

    def retrieve_job(self, job_id: str) -> CircuitJob:
        """Return a job of this user, whichever process submitted it."""
        return CircuitJob(self, self._client.task(job_id), [])


def _fits(circuit: QuantumCircuit, target: Target, places: Sequence[int]) -> bool:
    """Whether a target has all instructions of a circuit on the qubits `places`."""
    place = dict(zip(circuit.qubits, places, strict=True))
    for each in circuit.data:
        qubits = tuple(place[qubit] for qubit in each.qubits)
        if each.name == "if_else":
            if not all(_fits(block, target, qubits) for block in each.operation.blocks):
                return False
        elif each.name != "barrier" and not target.instruction_supported(each.name, qubits):
            return False
    return True
