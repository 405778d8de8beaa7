"""Agents for tasks that share a node: forked from a nursery, kept warm, each ended by itself.

A nursery is a process that has only imported what the program's tasks need, so that a fork of it is
an agent within a millisecond. Libraries decide on their number of threads while they are loaded:
hence there is one nursery for each number of cores that tasks have.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Lock, Thread
from typing import Any, BinaryIO, NoReturn

from qtide.backends.clusters.agent import limit, load, near_each_other, prepare, serve
from qtide.backends.clusters.supervisor import PAUSE, Output, output_pipe
from qtide.core.files import keep_bytecode
from qtide.core.processes import Header, die_with_parent, frame, read, signal_below

THREADS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "RAYON_NUM_THREADS",
)
"""Variables by which libraries decide on their number of threads."""
PROGRAM = "from qtide.backends.clusters.nursery import main; main()"
LIMIT = 90.0
"""Seconds within which a nursery must answer; it may have to import modules first."""
LONGEST = 1 << 20
"""Maximum bytes of a request to a nursery."""
MOST_IDLE = 2
"""Idle agents that are kept, as a multiple of the most that ever worked at once."""

Key = tuple[int, tuple[int, ...]]
"""An agent's number of cores and its GPUs; libraries keep the first GPUs that they see."""


@dataclass(eq=False)
class PartAgent:
    """The supervisor's end of the pipes to an agent."""

    key: Key
    pid: int
    tasks: BinaryIO
    answers: BinaryIO
    output: Output
    ticket: int | None = None
    """The task that it runs."""


class Nursery:
    """The supervisor's end of the connection to a nursery."""

    def __init__(self, cores: int, terms: dict[str, Any]) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        threads = {name: os.environ.get(name, str(cores)) for name in THREADS}
        said = json.dumps(terms | {"control": theirs.fileno()})
        self._process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, said],
            stdin=subprocess.DEVNULL,
            stdout=2,  # our own stdout carries the answers
            env=os.environ | threads,
            pass_fds=[theirs.fileno()],
        )
        theirs.close()
        self._control.settimeout(LIMIT)
        self._lock = Lock()

    def fork(self, pipes: list[int], modules: list[str]) -> int:
        """Have an agent forked that has these ends of pipes; return its process id."""
        return self._asked({"modules": modules}, pipes)

    def reap(self, pid: int) -> int:
        """Wait for the end of an agent; return its exit code."""
        return self._asked({"reap": pid}, [])

    def _asked(self, request: dict[str, Any], pipes: list[int]) -> int:
        with self._lock:
            try:
                socket.send_fds(self._control, [json.dumps(request).encode()], pipes)
                answer = self._control.recv(LONGEST)
            except TimeoutError:
                self._process.kill()  # and its agents with it
                raise
        if not answer:
            raise ConnectionError("the nursery of the node's agents has died")
        return int(answer)


@dataclass(eq=False)
class PartAgents:
    """The agents of a node that run tasks on parts of it; used by its supervisor."""

    send: Callable[[bytes], None]
    terms: dict[str, Any]
    """Limits and preparation of the node's agents."""
    _idle: dict[Key, list[PartAgent]] = field(default_factory=dict)
    _busy: dict[int, PartAgent] = field(default_factory=dict)
    _most_busy: int = 0
    _nurseries: dict[int, Nursery] = field(default_factory=dict)
    _modules: dict[str, None] = field(default_factory=dict)
    """What agents had to import, for later ones to find it imported."""
    _lock: Lock = field(default_factory=Lock)
    _by_pipe: dict[int, PartAgent] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._answering, self._printing = select.epoll(), select.epoll()
        for work in (self._pass_on, self._print):
            Thread(target=work, daemon=True).start()

    def perform(self, header: Header, body: bytes) -> None:
        """Let an agent run a task on the part of the node that the header names."""
        slot, ticket = header["slot"], header["ticket"]
        key = (len(slot["cores"]), tuple(slot["gpus"]))
        with self._lock:
            waiting = self._idle.get(key)
            agent = waiting.pop() if waiting else None
            if agent is not None:
                self._assign(agent, ticket)
        if agent is None:
            try:
                agent = self._start(key, ticket)
            except OSError as error:
                self.send(frame({"ticket": ticket, "died": f"did not start: {error}"}))
                return
        agent.output.begin(ticket)
        with suppress(BrokenPipeError, ValueError):  # its end is noticed where answers are read
            agent.tasks.write(frame(header, body))
        if header["limited"]:  # the start of its process does not count
            self.send(frame({"begun": ticket}))

    def _assign(self, agent: PartAgent, ticket: int) -> None:
        """Record an agent's task; whoever buries the agent from now on reports it."""
        agent.ticket = ticket
        self._busy[ticket] = agent
        self._most_busy = max(self._most_busy, len(self._busy))

    def end(self, ticket: int) -> None:
        """Kill the agent that runs a task, and everything that the task has started."""
        with self._lock:
            agent = self._busy.get(ticket)
            if agent is not None:
                kill_tree(agent.pid)

    def _start(self, key: Key, ticket: int) -> PartAgent:
        (tasks, to_agent), (from_agent, answers) = os.pipe(), os.pipe()
        printed, printing = output_pipe()
        theirs = [tasks, answers, printing]
        try:
            pid = self._fork(key[0], theirs)
        except OSError:
            for each in (to_agent, from_agent, printed):
                os.close(each)
            raise
        finally:
            for each in theirs:
                os.close(each)
        pipes = os.fdopen(to_agent, "wb", buffering=0), os.fdopen(from_agent, "rb")
        output = Output(printed, lambda ticket, text: self.send(frame({"log": ticket}, text)))
        agent = PartAgent(key, pid, *pipes, output)
        with self._lock:
            self._assign(agent, ticket)
        self._by_pipe |= {from_agent: agent, printed: agent}
        self._printing.register(printed, select.EPOLLIN)
        self._answering.register(from_agent, select.EPOLLIN)
        return agent

    def _fork(self, cores: int, pipes: list[int]) -> int:
        """Have an agent forked: by a new nursery if there is none, or if it has died."""
        modules, known = list(self._modules), self._nurseries.get(cores)
        if known is not None:
            with suppress(OSError):
                return known.fork(pipes, modules)
        new = self._nurseries[cores] = Nursery(cores, self.terms)
        try:
            return new.fork(pipes, modules)
        except OSError:
            del self._nurseries[cores]  # the next task gets another one
            raise

    def _pass_on(self) -> None:
        while True:
            for pipe, _ in self._answering.poll():
                agent = self._by_pipe[pipe]
                answer = read(agent.answers)
                if answer is None:
                    self._bury(agent, pipe)
                    continue
                header, body = answer
                self._modules |= dict.fromkeys(header.get("imported", ()))
                agent.output.end()
                with self._lock:
                    del self._busy[header["ticket"]]
                    agent.ticket = None
                    self._idle.setdefault(agent.key, []).append(agent)
                    surplus = self._surplus()
                self.send(frame(header, body))
                if surplus is not None:
                    surplus.tasks.close()  # it ends by itself

    def _surplus(self) -> PartAgent | None:
        """An idle agent to end: of those with needs that occur no more, there may be many."""
        idle = sum(map(len, self._idle.values()))
        if idle + len(self._busy) <= MOST_IDLE * self._most_busy + 1:
            return None
        longest = max(self._idle.values(), key=len)
        return longest.pop(0)

    def _bury(self, agent: PartAgent, pipe: int) -> None:
        """Forget an agent that has ended; if it had a task, report how it ended."""
        self._answering.unregister(pipe)
        del self._by_pipe[pipe]
        with self._lock:
            ticket = agent.ticket
            if ticket is not None:
                self._busy.pop(ticket, None)
            elif agent in (idle := self._idle.get(agent.key, [])):
                idle.remove(agent)
        agent.output.end()
        agent.answers.close()
        with suppress(OSError):
            agent.tasks.close()
        how = "ended"
        kill_tree(agent.pid)  # a task may have closed its pipes, and would be waited for
        with suppress(OSError, KeyError):  # its nursery may have died as well
            code = self._nurseries[agent.key[0]].reap(agent.pid)
            how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
        if ticket is not None:
            self.send(frame({"ticket": ticket, "died": how}))

    def _print(self) -> None:
        """Report what tasks print while they run."""
        while True:
            ready = self._printing.poll()
            time.sleep(PAUSE)  # collects lines
            for pipe, _ in ready:
                if not self._by_pipe[pipe].output.take():
                    self._printing.unregister(pipe)
                    self._by_pipe.pop(pipe).output.close()


def kill_tree(pid: int) -> None:
    """Kill a process and everything that it has started."""
    signal_below(pid, signal.SIGKILL)
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def main() -> NoReturn:
    """Fork agents on request, until the supervisor is gone."""
    terms = json.loads(sys.argv[1])
    control = socket.socket(fileno=terms["control"])
    die_with_parent()
    keep_bytecode()
    limit(**terms.get("limits", {}))
    preparation = terms.get("preparation", {})
    prepare(**preparation)
    sys.path[:] = preparation.get("path") or sys.path  # modules to import may come with requests
    near_each_other(frozenset(os.sched_getaffinity(0)))  # all agents inherit what that found
    while True:
        data, pipes, _, _ = socket.recv_fds(control, LONGEST, 3)
        if not data:
            os._exit(0)
        request = json.loads(data)
        if "reap" in request:
            code = -signal.SIGKILL  # if it died with the nursery that had forked it
            with suppress(ChildProcessError):
                code = os.waitstatus_to_exitcode(os.waitpid(request["reap"], 0)[1])
            control.send(str(code).encode())
            continue
        load([each for each in request["modules"] if each not in sys.modules])
        sys.stdout.flush()
        nursery, pid = os.getpid(), _forked()
        if not pid:
            control.close()
            _become_agent(nursery, *pipes)
        for pipe in pipes:
            os.close(pipe)
        control.send(str(pid).encode())


def _forked() -> int:
    import gc
    import warnings

    gc.freeze()  # collecting garbage would copy the pages that agents share
    with warnings.catch_warnings():
        # libraries with threads, such as those for linear algebra, know how to be forked
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _become_agent(nursery: int, tasks: int, answers: int, printing: int) -> NoReturn:
    die_with_parent()
    if os.getppid() != nursery:  # it was killed meanwhile, and another agent gets these pipes
        os._exit(1)
    for pipe in (tasks, answers):
        os.set_inheritable(pipe, False)
    for stream in (1, 2):
        os.dup2(printing, stream)
    os.close(printing)
    numpy = sys.modules.get("numpy")
    if numpy is not None:  # or tasks in several agents would draw the same numbers
        numpy.random.seed()
    try:
        serve(os.fdopen(tasks, "rb"), os.fdopen(answers, "wb", buffering=0))
    finally:
        os._exit(0)
