"""A real IQM quantum computer, or any server with the same API, used through IQM's client.

The client decides which circuits are valid, since it knows the current calibration. It is installed
only in the worker's environment; versions 33 to 36 differ in how a client is created and how a job
is described.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

from qtide.backends.devices.device import Device, DeviceAway, DeviceFailed, WorkPiece
from qtide.backends.devices.profile import Cost
from qtide.backends.payloads.formats.iqm import IqmBatch, IqmCircuit
from qtide.backends.payloads.guard import plain_message
from qtide.backends.payloads.payload import PayloadRefused
from qtide.backends.payloads.shots import Shots
from qtide.core.errors import UsageError

log = logging.getLogger(__name__)

FIRST_PAUSE = 0.05
LONGEST_PAUSE = 1.0
"""First and longest pause, in seconds, between two queries of a job's status."""

JOB_S, RESET_S, STEP_S = 1.0, 300e-6, 100e-9
"""Seconds that a chip takes per job, per reset before a shot, and per layer of gates."""

METHODS = {"prx": "rb", "measure": "ssro"}
"""How the fidelity of a gate is measured, as in the names of IQM's metrics; by default `irb`."""

ENDED = ("completed", "failed", "cancelled")


class IqmServer(Device):
    """Takes IQM circuits and returns a list of `Shots`.

    The token comes from `token_file`, or the client reads it from IQM_TOKEN or IQM_TOKENS_FILE.
    """

    name = "iqm"
    usual_profile = None

    def __init__(
        self,
        url: str,
        quantum_computer: str | None = None,
        token_file: str | None = None,
        limit: float = 600.0,
    ) -> None:
        self._url = url
        self._computer = quantum_computer
        self._token_file = token_file
        self._limit = limit

    def warm_up(self) -> None:
        """Import the client and connect."""
        _ = self._client

    def properties(self) -> dict[str, Any]:
        """What the server reports now; `loci` lists where each IQM operation can act."""
        try:
            chip = self._client.get_dynamic_quantum_architecture()
        except Exception as error:
            raise self._failed(error) from None
        set_id = getattr(chip, "calibration_set_id", None)
        loci = {name: [list(locus) for locus in gate.loci] for name, gate in chip.gates.items()}
        return {
            "formats": ["iqm", "burst"],
            "qubits": list(chip.qubits),
            "resonators": list(chip.computational_resonators),
            "connections": loci.get("cz", []),
            "gates": [],
            "operations": [*loci, "barrier", "delay"],
            "loci": loci,
            "calibration": None if set_id is None else {"id": str(set_id)},
            "metrics": self._metrics(chip),
            "most": {"shots": self.most_shots, "qubits": len(chip.qubits)},
        }

    def cost(self, payload: Any) -> Cost:
        """Each shot of a circuit takes a reset and one step per layer of its depth."""
        depth = sum(_depth(circuit) for circuit in payload.circuits)
        return Cost(JOB_S, RESET_S * len(payload.circuits) + STEP_S * depth)

    def pieces(
        self, payload: Any, shots: int, seed: int, chunk: float, done: int
    ) -> Iterator[WorkPiece]:
        """As many shots at a time as the chip takes `chunk` seconds for, in jobs of their own."""
        if not isinstance(payload, IqmBatch):
            yield from super().pieces(payload, shots, seed, chunk, done)
            return
        step = max(1, int(chunk / self.cost(payload).shot))
        for first in range(done, shots, step):
            last = min(first + step, shots)
            yield WorkPiece(last, last / shots, self.solve(payload, last - first, seed))

    def join(self, earlier: list[Shots], later: list[Shots]) -> list[Shots]:
        """Each circuit's shots, one piece after the other."""
        pairs = zip(earlier, later, strict=True)
        return [Shots(one.registers, one.data + more.data) for one, more in pairs]

    def _check(self, payload: Any) -> None:
        if not isinstance(payload, IqmBatch):
            kind = type(payload).__name__
            raise PayloadRefused(f"an IQM computer takes IQM's circuits, not {kind}")
        client = self._client
        define = getattr(client, "create_circuit_job_definition", None) or client.create_run_request
        self._asked(define, payload, 1)

    def _solve(self, payload: Any, shots: int, seed: int) -> Any:
        """Run the batch; the seed is ignored, as a real device has none."""
        job = self._asked(self._client.submit_circuits, payload, shots)
        try:
            self._wait(job)
            self.calibration = _calibration_of(job)
            answers = zip(payload.circuits, job.result(), strict=True)
            return [_shots(circuit, rows, shots) for circuit, rows in answers]
        except DeviceFailed:
            raise
        except Exception as error:
            raise self._failed(error) from None

    def _asked(self, call: Any, batch: IqmBatch, shots: int) -> Any:
        """Pass the batch to the client; a validation error refuses it, others are failures."""
        circuits = [_circuit(one) for one in batch.circuits]
        try:
            return call(circuits, qubit_mapping=batch.qubit_mapping, shots=shots)
        except (_package().CircuitValidationError, ValueError) as error:
            raise PayloadRefused(plain_message(error)) from None
        except Exception as error:
            raise self._failed(error) from None

    def _metrics(self, chip: Any) -> dict[str, float]:
        """The quality of gates and qubits as the server reports it, by IQM's names."""
        found: dict[str, float | None] = {}
        try:
            known = self._client.get_calibration_quality_metrics()
            for name, gate in chip.gates.items():
                for implementation, places in gate.implementations.items():
                    for locus in places.loci:
                        at = f"{METHODS.get(name, 'irb')}.{name}.default.{'__'.join(locus)}"
                        fidelity = known.get_gate_fidelity(name, implementation, locus)
                        found[f"metrics.{at}.fidelity"] = fidelity
            for noun, times in zip(
                ("t1", "t2"), known.get_coherence_times(chip.qubits), strict=True
            ):
                found |= {f"characterization.model.{q}.{noun}_time": s for q, s in times.items()}
        except Exception as error:  # a server without metrics must not stop the device
            log.warning("%s has no metrics: %s", self._place, plain_message(error))
        return {name: float(value) for name, value in found.items() if value is not None}

    def _wait(self, job: Any) -> None:
        """Wait until the job is completed; after the time limit, cancel it and fail."""
        end, pause = time.monotonic() + self._limit, FIRST_PAUSE
        while (status := str(job.update())) not in ENDED:
            if time.monotonic() > end:
                job.cancel()
                raise DeviceFailed(
                    f"{self._place} left a job {status} for {self._limit:g} s; it was cancelled"
                )
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
        if status != "completed":
            data = getattr(job, "job_data", None) or job.data
            reasons = " ".join(str(error) for error in data.errors) or "without a reason"
            raise DeviceFailed(f"{self._place} ended a job as {status}: {reasons}")

    @cached_property
    def _client(self) -> Any:
        client = _package().IQMClient
        make = getattr(client, "from_url", client)
        token = self._token()
        try:
            return make(self._url, quantum_computer=self._computer, token=token)
        except Exception as error:
            raise self._failed(error) from None

    def _token(self) -> str | None:
        if self._token_file is None:
            return None
        try:
            return Path(self._token_file).read_text().strip()
        except OSError as error:
            raise UsageError(f"the token file {self._token_file}: {error.strerror}") from None

    @property
    def _place(self) -> str:
        return f"the IQM server {self._url}"

    def _failed(self, error: Exception) -> DeviceFailed:
        """Convert the client's error; an OSError is a network failure."""
        kind = DeviceAway if isinstance(error, OSError) else DeviceFailed
        return kind(f"{self._place} failed: {plain_message(error)}")


def _package() -> Any:
    try:
        return import_module("iqm.iqm_client")
    except ImportError:
        raise UsageError(
            "the device of kind 'iqm' needs the package iqm-client in its Python's environment"
        ) from None


def _circuit(circuit: IqmCircuit) -> Any:
    package = _package()
    operations = (
        package.CircuitOperation(one.name, one.locus, _floats(one.args), one.implementation)
        for one in circuit.instructions
    )
    return package.Circuit(circuit.name, tuple(operations), circuit.metadata)


def _calibration_of(job: Any) -> str | None:
    """The calibration set that a job ran with, if the server told."""
    data = getattr(job, "job_data", None) or getattr(job, "data", None)
    found = getattr(getattr(data, "compilation", None), "calibration_set_id", None)
    return None if found is None else str(found)


def _depth(circuit: IqmCircuit) -> int:
    """The number of layers; operations on the same qubit are in successive layers."""
    layers: dict[str, int] = {}
    for one in circuit.instructions:
        layer = 1 + max((layers.get(qubit, 0) for qubit in one.locus), default=0)
        layers.update(dict.fromkeys(one.locus, layer))
    return max(layers.values(), default=0)


def _floats(args: dict[str, Any]) -> dict[str, Any]:
    """Convert integers to floats: JSON may hold integer angles, but the client needs floats."""
    return {key: float(one) if isinstance(one, int) else one for key, one in args.items()}


def _shots(circuit: IqmCircuit, rows: dict[str, list[list[int]]], shots: int) -> Shots:
    """Combine the rows of all measurement keys into shots."""
    measured = [one for one in circuit.instructions if one.name == "measure"]
    registers = [(one.args["key"], len(one.locus)) for one in measured]
    values = [0] * shots
    place = 0
    for key, width in registers:
        if len(rows[key]) != shots or any(len(row) != width for row in rows[key]):
            raise DeviceFailed(f"the IQM server gave no {shots} rows of {width} bits for {key!r}")
        for shot, row in enumerate(rows[key]):
            for bit, value in enumerate(row):
                values[shot] |= int(value) << place + bit
        place += width
    return Shots.of(registers, values)
