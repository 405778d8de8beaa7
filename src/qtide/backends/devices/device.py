"""Devices: their interface, their kinds, the choice made by `--qpu`, and their worker processes."""

from __future__ import annotations

import asyncio
import fcntl
import os
import sys
import time
import tomllib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from inspect import signature
from itertools import pairwise
from math import inf
from pathlib import Path
from types import UnionType
from typing import IO, Any, NamedTuple, get_args, get_origin

from qtide.backends.devices.profile import UNTIMED, Cost, Profile, profile, profiles
from qtide.backends.payloads.payload import Burst, PayloadRefused
from qtide.core.errors import PhaseError, QtideError, UsageError
from qtide.core.plugins import Plugins
from qtide.core.processes import Child, Header


class DeviceFailed(PhaseError):  # noqa: N818 - what happened
    """The device accepted the payload but could not compute its answer."""


class DeviceAway(DeviceFailed):
    """The device is currently unreachable; the payload is not at fault."""


class WorkPiece(NamedTuple):
    """A piece of a task's work."""

    done: int
    """How much is done after it: circuits, shots, or whatever the device counts."""
    share: float
    """The same as a share of the whole task."""
    answer: Any


class Device(ABC):
    """Computes answers; the timing profile decides how long that appears to take.

    Every device answers bursts, so a workload of mere durations runs anywhere.
    """

    name: str
    most_shots: int = 100_000
    usual_profile: str | None = "superconducting"
    """The default timing profile; None if the device takes its own time."""
    light = False
    """Whether a driver computes answers in its own process, without a worker."""
    calibration: str | None = None
    """The id of the calibration set of the last answer, if the device itself knows one."""
    extra: str | None = None
    """The extra of qtide that installs the device's packages: `pip install 'qtide[gate]'`."""

    def check(self, payload: Any) -> None:
        """Raise PayloadRefused, saying why, if the device cannot take the payload."""
        if not isinstance(payload, Burst):
            self._check(payload)

    def check_shots(self, shots: int) -> None:
        """Raise PayloadRefused if the number of shots is out of range."""
        if not 0 < shots <= self.most_shots:
            raise PayloadRefused(f"the {self.name} takes 1 to {self.most_shots} shots, not {shots}")

    def solve(self, payload: Any, shots: int, seed: int) -> Any:
        """Compute the answer; it is the same for the same payload, shots and seed."""
        if isinstance(payload, Burst):
            return payload.answer
        self.check_shots(shots)
        return self._solve(payload, shots, seed)

    def fidelity(self, payload: Any) -> float | None:
        """Expected fidelity of a payload's circuits, on average; None if it cannot tell."""
        return None

    def width(self, payload: Any) -> int | None:
        """The qubits that a payload takes if it runs beside others; None if it cannot."""
        return None

    def beside(self, payloads: Sequence[Any]) -> list[Device]:
        """For each of some payloads, a device of its own: the part that it gets of this one.

        For devices whose properties have `divisible`, the number of qubits that may be divided.
        """
        raise DeviceFailed(f"the {self.name} runs one payload at a time")

    def pieces(
        self, payload: Any, shots: int, seed: int, chunk: float, done: int
    ) -> Iterator[WorkPiece]:
        """Compute the answer in pieces of about `chunk` seconds, after those that are `done`.

        Joined, they are the answer of `solve`. Without a timing profile, the device gives way to
        other tasks between two of them.
        """
        yield WorkPiece(1, 1.0, self.solve(payload, shots, seed))

    def join(self, earlier: Any, later: Any) -> Any:
        """Join the answers of two successive pieces."""
        return [*earlier, *later]

    def warm_up(self) -> None:  # noqa: B027 - some devices have nothing to do
        """Do work that would delay the first payload, such as imports, in advance."""

    def cost(self, payload: Any) -> Cost | None:
        """Estimate how long the device takes for a valid payload; None if it cannot tell.

        A timing profile takes precedence. The service refuses a payload only if this estimate is
        far above a limit, and learns better estimates from what runs.
        """
        return None

    @abstractmethod
    def properties(self) -> dict[str, Any]:
        """Describe the device to clients, as JSON, without importing an SDK.

        Contains the accepted `formats` and the limits (`most`) on shots, circuits and so on; for a
        gate device also its `qubits`, `connections` and `gates`. May contain `metrics`, the quality
        of gates and readout by IQM's names, and `calibration`, the `id` of the set they belong to.
        """

    @abstractmethod
    def _check(self, payload: Any) -> None:
        """`check` for anything but a burst."""

    @abstractmethod
    def _solve(self, payload: Any, shots: int, seed: int) -> Any:
        """`solve` for anything but a burst."""


DEVICES: Plugins[Callable[..., Device]] = Plugins("qtide.devices", "kind of device")


def make(kind: str, options: dict[str, Any]) -> Device:
    """Create a device of that kind; raises UsageError for an unknown kind or wrong options."""
    maker = DEVICES.load(kind)
    _check_options(kind, maker, options)
    return maker(**options)


def _check_options(kind: str, maker: Callable[..., Device], options: dict[str, Any]) -> None:
    what = f"a device of kind {kind!r}"
    known = signature(maker, eval_str=True).parameters
    for name, value in options.items():
        if name not in known:
            names = ", ".join(known) or "none"
            raise UsageError(f"{what} has no option {name!r}; it has: {names}")
        if not _fits(value, known[name].annotation):
            raise UsageError(f"{what} cannot have {name} = {value!r}")
    for name, option in known.items():
        if option.default is option.empty and name not in options:
            raise UsageError(f"{what} needs the option {name!r}")


def _fits(value: Any, hint: Any) -> bool:
    """Whether the value has the annotated type; the device itself checks list entries."""
    kinds = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    if isinstance(value, bool):
        return bool in kinds
    if isinstance(value, int) and float in kinds:
        return True
    return any(isinstance(value, get_origin(kind) or kind) for kind in kinds)


@contextmanager
def needed_packages(device: Device) -> Iterator[None]:
    """Turn an ImportError into a UsageError that says how to install the device's packages."""
    try:
        yield
    except ImportError as error:
        install = f"; pip install 'qtide[{device.extra}]'" if device.extra else ""
        raise UsageError(f"the {device.name} needs a package: {error}{install}") from None


def takers(format: str) -> str:  # noqa: A002 - as everywhere
    """The `--qpu` values that take this format, as the end of a sentence; empty if none does."""
    kinds = [kind for kind in DEVICES.names() if format in _formats(kind)]
    names = " or ".join([", ".join(kinds[:-1]), kinds[-1]] if kinds[1:] else kinds)
    return f"; --qpu {names} takes it" if kinds else ""


def _formats(kind: str) -> list[str]:
    """The formats that a kind takes; none if it needs options or a server to find out."""
    try:
        formats: list[str] = make(kind, {}).properties()["formats"]
    except (QtideError, PhaseError):
        return []
    return formats


FORM = "DEVICE[:PROFILE][,OPTION=VALUE...]"
LIMIT = 600.0
"""Seconds within which an answer must be computed."""
TIMED_ONLY = "annealer"
"""The device used if `--qpu` names only a timing profile."""


@dataclass(frozen=True)
class DeviceChoice:
    """A device as `--qpu` names it; its options are those of a device of the service."""

    kind: str
    options: dict[str, Any]
    profile_name: str | None = None
    limit: float = LIMIT

    @cached_property
    def device(self) -> Device:
        """The device itself, not yet warmed up."""
        return make(self.kind, self.options)

    @property
    def profile(self) -> Profile:
        """The chosen timing profile, otherwise the device's default."""
        name = self.profile_name or self.device.usual_profile
        return UNTIMED if name is None else profile(name)

    def check(self) -> DeviceChoice:
        """Return self; raise UsageError if there is no such device, option or profile."""
        _ = self.device, self.profile
        return self


def choice(words: str) -> DeviceChoice:
    """Parse a `--qpu` value such as `star`, `star:trapped-ion` or `gate,qubits=7,noisy`."""
    head, *rest = _parts(words)
    name, _, timing = head.partition(":")
    options = dict(_option(part, words) for part in rest)
    if timing:
        options["profile"] = timing
    if name not in DEVICES.names():
        if name not in profiles():
            raise _unknown(name)
        if "profile" in options:
            raise UsageError(f"{name!r} is a timing: name a device first, as in annealer:{name}")
        name, options["profile"] = TIMED_ONLY, name
    timing, limit = options.pop("profile", None), _seconds(options.pop("limit", LIMIT))
    return DeviceChoice(name, options, timing, limit).check()


def _parts(words: str) -> list[str]:
    """Split at commas, except inside brackets."""
    parts: list[str] = []
    for piece in words.split(","):
        if parts and parts[-1].count("[") > parts[-1].count("]"):
            parts[-1] += f",{piece}"
        else:
            parts.append(piece)
    return parts


def _option(part: str, words: str) -> tuple[str, Any]:
    """An option and its value, a TOML value or else a string; without a value, True."""
    name, equals, text = part.strip().partition("=")
    if not name or (equals and not text):
        raise UsageError(f"--qpu {words} cannot be read: it has the form {FORM}")
    try:
        value = tomllib.loads(f"value = {text}")["value"] if equals else True
    except tomllib.TOMLDecodeError:
        value = text
    return name.replace("-", "_"), value


def _seconds(limit: Any) -> float:
    if isinstance(limit, int | float) and limit is not True and 0 < limit < inf:
        return float(limit)
    raise UsageError(f"the QPU's limit is a number of seconds above 0, not {limit!r}")


def _unknown(name: str) -> UsageError:
    devices, timings = ", ".join(DEVICES.names()), ", ".join(sorted(profiles()))
    return UsageError(
        f"there is no QPU {name!r}{_suggestion(name)}: name a device ({devices}), a timing profile "
        f"for the {TIMED_ONLY} ({timings}), or a device of a service as http://HOST:PORT/DEVICE"
    )


def _suggestion(name: str) -> str:
    """A hint with the most similar known name, whatever the order of its words."""
    known = {"-".join(sorted(each.split("-"))): each for each in (*profiles(), *DEVICES.names())}
    near = get_close_matches("-".join(sorted(name.split("-"))), known, n=1)
    return f" (did you mean {known[near[0]]}?)" if near else ""


START_LIMIT = 60.0
"""Seconds within which a worker must be ready: vendors' packages are slow to import."""


class WorkerLost(QtideError):  # noqa: N818 - what happened
    """A device's worker has ended or did not start."""


@dataclass(frozen=True)
class Occupation:
    """A period in which a task occupied the device, by the device's clock."""

    ticket: str
    began: float
    seconds: float
    finished: bool = True
    """Whether the device finished the task; False if its worker died meanwhile."""


class OccupationLog:
    """A file in which a worker notes when each task began and ended on the device.

    It tells what a killed worker or a killed service could not report. A process beside the worker,
    the witness, adds when the worker died. Both share one lock on the file, which therefore is
    free once nothing will be added.
    """

    MOST = 4 * 2**20
    """Bytes beyond which the older half is dropped; the accounts have it long since."""
    SETTLING = 2.0
    """The longest time in seconds to wait for a witness."""

    def __init__(self, file: Path) -> None:
        """Begin a new file, to which a late witness of the last one cannot add; raises OSError."""
        file.unlink(missing_ok=True)
        self._fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        fcntl.flock(self._fd, fcntl.LOCK_SH)
        self._size = 0

    def note(self, *words: str | float) -> None:
        """Add a line; a full disk must not stop the device."""
        line = " ".join(map(str, words)) + "\n"
        with suppress(OSError):
            if self._size > self.MOST:
                self._drop_half()
            self._size += os.write(self._fd, line.encode())

    def beat(self) -> None:
        """Set the file's time, the last sign of life if the witness is killed as well."""
        os.utime(self._fd)

    def _drop_half(self) -> None:
        kept = os.pread(self._fd, self.MOST // 2, self._size - self.MOST // 2)
        os.ftruncate(self._fd, 0)
        self._size = os.write(self._fd, kept.partition(b"\n")[2])

    @classmethod
    async def settled(cls, file: Path) -> list[Occupation]:
        """What is in a file, once its worker and witness have ended; nothing if there is none."""
        try:
            found = file.open()
        except OSError:
            return []
        with found:
            end = time.monotonic() + cls.SETTLING
            while time.monotonic() < end:
                with suppress(OSError):
                    fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                await asyncio.sleep(0.001)
            return _occupations(found.read().splitlines(), os.fstat(found.fileno()).st_mtime)


def _occupations(lines: list[str], last_sign: float) -> list[Occupation]:
    """Pair the lines of a log; a line that was cut off ends the list."""
    found: list[Occupation] = []
    current: tuple[str, float, float] | None = None
    for line in lines:
        kind, *words = line.split(" ")
        try:
            if kind == "began":
                tickets, wall, clock = words
                current = tickets, float(wall), float(clock)
            elif current is not None:
                seconds = max(0.0, float(words[0]) - current[2])
                found += _divided(*current[:2], seconds, finished=kind == "ended")
                current = None
        except (ValueError, IndexError):
            break
    if current is not None:
        found += _divided(*current[:2], max(0.0, last_sign - current[1]), finished=False)
    return found


def _divided(tickets: str, began: float, seconds: float, *, finished: bool) -> list[Occupation]:
    """Divide an occupation among the tasks that ran at the same time: `TICKET*PART+TICKET*PART`."""
    names, parts = zip(*(each.partition("*")[::2] for each in tickets.split("+")), strict=True)
    periods = divided(began, seconds, [float(part or 1.0) for part in parts])
    return [Occupation(name, *each, finished) for name, each in zip(names, periods, strict=True)]


def divided(began: float, seconds: float, parts: Sequence[float]) -> list[tuple[float, float]]:
    """A period in successive parts, each with its begin and its seconds, which add up exactly."""
    ends = [seconds * sum(parts[: place + 1]) for place in range(len(parts) - 1)]
    # seconds since the begin: those of the clock are too large to be subtracted exactly
    return [(began + first, last - first) for first, last in pairwise([0.0, *ends, seconds])]


class Process:
    """One worker process."""

    def __init__(self, child: Child, properties: dict[str, Any], occupied: Path | None) -> None:
        self._child = child
        self.properties = properties
        self._occupied = occupied

    @staticmethod
    async def start(
        kind: str,
        options: dict[str, Any],
        python: str | None,
        log: IO[bytes],
        occupied: Path | None = None,
    ) -> Process:
        """Start a worker and return when its device is ready; it keeps a log in `occupied`."""
        python = python or sys.executable
        try:
            child = await Child.start((python, "-m", "qtide.backends.devices.worker"), log)
        except OSError as error:
            raise WorkerLost(f"{python} cannot be started: {error.strerror}") from None
        try:
            async with asyncio.timeout(START_LIMIT):
                return Process(child, await _greet(child, kind, options, occupied), occupied)
        except TimeoutError:
            await child.kill()
            raise WorkerLost(f"the device was not ready within {START_LIMIT:g} s") from None
        except BaseException:
            await child.kill()
            raise

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._child.alive

    @property
    def pid(self) -> int:
        """The process id."""
        return self._child.pid

    def send(self, header: Header, body: bytes = b"") -> None:
        """Send a task to run or a payload to check."""
        self._child.send(header, body)

    def messages(self) -> AsyncIterator[tuple[Header, bytes]]:
        """The worker's messages, until it ends."""
        return self._child.messages()

    async def end(self) -> None:
        """Kill the worker and everything it started."""
        await self._child.kill()

    async def occupations(self) -> list[Occupation]:
        """What occupied the device, once the worker has ended, whether it was reported or not."""
        return [] if self._occupied is None else await OccupationLog.settled(self._occupied)


async def _greet(
    child: Child, kind: str, options: dict[str, Any], occupied: Path | None
) -> dict[str, Any]:
    """Tell the worker which device to run; return the device's properties."""
    log = {} if occupied is None else {"occupied": str(occupied)}
    child.send({"kind": kind, "options": options} | log)
    try:
        header, _ = await child.message()
    except (asyncio.IncompleteReadError, ConnectionError):
        raise WorkerLost("the device's process ended while it started; see its log") from None
    if "failed" in header:
        raise WorkerLost(f"the device did not start: {header['failed']}")
    properties: dict[str, Any] = header["ready"]
    return properties
