"""The driver's link to an agent: sends tasks, receives answers and detects lost nodes."""

from __future__ import annotations

import asyncio
import pickle
import sys
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from qtide.backends.clusters.cluster import Message, Node, Work
from qtide.core.errors import NodeLost, NodeTaskFailed, noted
from qtide.core.job import Imported, Preparation
from qtide.core.log import Log
from qtide.core.processes import Child, Header
from qtide.core.resources import in_words
from qtide.core.values import Packed

START_LIMIT = 30.0
"""Seconds within which an agent must send its first message."""
PREPARATION_LIMIT = 60.0
"""Seconds within which an agent must have imported what earlier tasks needed."""
USUAL = ("srun: cluster configuration lacks support for cpu binding",)
"""Useless srun messages that appear for every agent on some sites."""
LAST_WORDS = 1.0
"""Seconds to read what a dead agent has left in its pipe."""
SILENCE = 60.0
"""Seconds without a message after which a node counts as lost. TCP retransmits lost packets at
increasing intervals, so a node survives an outage of half this time."""
BEATS = 12
"""Number of heartbeats within `SILENCE` seconds."""


class AgentFailed(Exception):  # noqa: N818 - named after the event
    """An agent did not start."""


class PreparationFailed(AgentFailed):
    """An agent started, but died or timed out while importing modules."""


def supervisor_terms(silence: float, release_command: Sequence[str] = ()) -> dict[str, Any]:
    """Settings for the supervisor at the other end of a link."""
    return {"beat": silence / BEATS, "release_command": list(release_command)}


def preparation_terms(preparation: Preparation) -> dict[str, Any]:
    """Modules that an agent imports at its start, and the search path for them."""
    return {"path": _search_path(tuple(sys.path)), "modules": preparation.modules}


class Link:
    """Connection to the agent of one node, for the agent's lifetime."""

    def __init__(
        self, child: Child, name: str, log: Log | None = None, silence: float = SILENCE
    ) -> None:
        self.child = child
        self.name = name
        self.log = log
        """Log of the run that holds the node; a task's output goes to its own run's log."""
        self._silence = silence
        self._missed = 0
        self.node: Node | None = None
        """The node that receives the answers; an agent may outlive a grant."""
        self._works: dict[int, Work] = {}
        self._given_up = False
        self._stderr = asyncio.create_task(self._log_stderr())

    async def greet(self, preparation: Preparation) -> None:
        """Wait until the agent is prepared, then listen; raise AgentFailed if it never is."""
        await self._first_message(START_LIMIT, AgentFailed)
        try:
            await self._first_message(PREPARATION_LIMIT, PreparationFailed)
        except PreparationFailed:
            preparation.failed()
            raise
        self._listener = asyncio.create_task(self._listen())
        self._pulse = asyncio.create_task(self._beat())

    async def _first_message(self, limit: float, failure: type[AgentFailed]) -> None:
        """Wait for the next message that is neither a heartbeat nor output."""
        try:
            async with asyncio.timeout(limit):
                while not self._is_message(*await self.child.message()):
                    continue
        except (TimeoutError, asyncio.IncompleteReadError, ConnectionError) as error:
            await asyncio.wait({self._stderr}, timeout=LAST_WORDS)
            raise failure from error

    def send(self, ticket: int, work: Work) -> None:
        """Send a task to the agent."""
        values, task = work.job.values, work.task
        packed = values.pack((task.function, task.args, work.kwargs), by_value=True)
        header: Header = {
            "ticket": ticket,
            "values": str(values.folder.absolute()),
            "path": _search_path(tuple(sys.path)),
            "file": packed.file,
            "buffers": packed.buffers,
            "mpi": work.mpi_rank,
            "malleable": work.member,
        }
        if work.slot is not None:
            header |= {"slot": work.slot.as_json(), "limited": work.task.limit is not None}
        self._works[ticket] = work
        self.child.send(header, packed.data)

    def tell(self, ticket: int, message: Message) -> None:
        """Tell the task that the agent runs something."""
        self.child.send({"told": ticket, "message": message})

    def end_task(self, ticket: int) -> None:
        """Kill the process of a task that has a part of the node."""
        self.child.send({"end": ticket})

    @property
    def silent(self) -> bool:
        """Whether the agent has sent no message for too long."""
        return self._missed > BEATS

    def hang_up(self) -> None:
        """Close the connection so that the agent ends; ignore messages about its end."""
        self._given_up = True
        self.child.hang_up()

    async def kill(self) -> None:
        """Kill the agent and everything it started."""
        self._given_up = True
        await self.child.kill_all()
        await asyncio.wait({self._stderr}, timeout=LAST_WORDS)

    async def _listen(self) -> None:
        async for header, body in self.child.messages():
            self._missed = 0
            if self._is_message(header, body):
                self._answer(header, body)
        self._pulse.cancel()
        code = await self.child.ended()
        if self.node is not None:
            self.node.lose(f"lost its agent ({_ending(code)})")

    def _is_message(self, header: Header, body: bytes) -> bool:
        """Whether a message is neither a heartbeat (empty) nor output, which is logged here."""
        if "log" in header:
            work = self._works.get(header["log"])
            log, place = (work.job.log, work.place) if work else (self.log, ())
            if log is not None:
                log.write(self.name, body.decode(errors="replace"), *place)
        return bool(header) and "log" not in header

    async def _log_stderr(self) -> None:
        """Log what the supervisor, or the command that starts the agent, writes to stderr."""
        async for text in self.child.complaints():
            told = [
                line for line in text.decode(errors="replace").splitlines() if line not in USUAL
            ]
            if told and self.log is not None and not self._given_up:
                self.log.write(self.name, "\n".join(told))

    async def _beat(self) -> None:
        """Send heartbeats, and detect when the other side sends none.

        Heartbeats are counted, not timed, so a suspended driver does not count any as missed.
        """
        while True:
            await asyncio.sleep(self._silence / BEATS)
            self.child.send({})
            self._missed += 1
            if self.silent and self.node is not None:
                self.node.dirty = True  # it may still be running something
                self.node.lose(f"did not answer for {self._silence:g} s")

    def _answer(self, header: Header, body: bytes) -> None:
        if "begun" in header:
            if self.node is not None:
                self.node.begun(header["begun"])
            return
        if "said" in header:  # the task runs on
            self._works[header["said"]].hear(header["message"])
            return
        work = self._works.pop(header["ticket"])
        if self.node is None:
            return
        result: Any = None
        error: Exception | None = None
        if "died" in header:
            error = NodeLost(f"the task's process on node {self.node.name} {header['died']}")
        elif "error" in header:
            error = _failure(work, self.node.name, header, body)
        else:
            try:
                packed = Packed(body, header["file"], tuple(header["buffers"]))
                result = work.job.values.unpack(packed)
            except Exception as unreadable:
                error = unreadable
        imported = Imported(header.get("imported", {}), header.get("importing", 0.0))
        self.node.deliver(header["ticket"], result, error, imported)


@lru_cache(maxsize=4)
def _search_path(places: tuple[str, ...]) -> list[str]:
    """Our module search path with absolute paths, valid in any working directory of a node."""
    return [str(Path(place).absolute()) for place in places]


def _failure(work: Work, node: str, header: Header, body: bytes) -> Exception:
    """The task's exception, with notes that name the task, the node and the user's own lines."""
    error = _unpickled(body) or NodeTaskFailed(header["error"])
    if isinstance(error, MemoryError) and work.slot is not None and work.slot.memory is not None:
        error.add_note(f"its needs allow it {in_words(work.slot.memory)}: raise memory=")
    return noted(error, work.task.name, node, header["lines"])


def _unpickled(body: bytes) -> Exception | None:
    try:
        error = pickle.loads(body)
    except Exception:
        return None
    return error if isinstance(error, Exception) else None


def _ending(code: int) -> str:
    return f"killed by signal {-code}" if code < 0 else f"exit code {code}"
