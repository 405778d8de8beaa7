"""Functions that run on agents, in a module that agents can import."""

import os
import random
import signal
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np


def add(*numbers: float) -> float:
    return sum(numbers)


def pid(*_: object) -> int:
    return os.getpid()


def load(module: str) -> bool:
    """Import a module; return whether it had been imported before."""
    before = module in sys.modules
    import_module(module)
    return before


def fail(text: str) -> None:
    raise ValueError(text)


class Stubborn(Exception):
    """An exception that cannot be rebuilt from its pickle."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__(one)


def fail_stubbornly() -> None:
    raise Stubborn("first", "second")


def double(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    array *= 2
    return array


def chatter() -> str:
    print("to stdout")
    return "heard"


def say(text: str, times: int = 1, end: str = "\n") -> None:
    for _ in range(times):
        print(text, end=end)


def crash(text: str) -> None:
    print(text)
    os.kill(os.getpid(), signal.SIGSEGV)


def meet(folder: str, number: int) -> dict[str, Any]:
    """Wait until so many tasks are in the folder at once, each in a process of its own."""
    place, limit = Path(folder), time.monotonic() + 60
    (place / str(os.getpid())).touch()
    while len(list(place.iterdir())) < number and time.monotonic() < limit:
        time.sleep(0.01)
    return mine(0.0) | {"met": len(list(place.iterdir()))}


def kill_parent_once(marker: str) -> str:
    if not Path(marker).exists():
        Path(marker).touch()
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(60)  # it dies with its parent
    return "survived"


def die_once(marker: str) -> str:
    """Kill the agent the first time."""
    if os.path.exists(marker):  # noqa: PTH110 - imports nothing
        return "survived"
    open(marker, "w").close()  # noqa: PTH123
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


def die_before_a_child() -> None:
    """End the agent while a process that it forked lives on, with all its pipes."""
    if os.fork():
        os._exit(3)
    time.sleep(600)


def wait(begun: str, go: str) -> str:
    """Say that it has begun, and end once that is allowed."""
    print("begun")
    open(begun, "w").close()  # noqa: PTH123 - imports nothing
    for _ in range(6000):
        if os.path.exists(go):  # noqa: PTH110 - imports nothing
            break
        time.sleep(0.01)
    return go


def hold_lock(seconds: int) -> int:
    """Let no other thread of Python run for a while, as some compiled code does."""
    import ctypes

    ctypes.PyDLL(None).sleep(seconds)
    return seconds


def eat(megabytes: int) -> int:
    return len(bytearray(megabytes * 2**20))


def cores() -> int:
    return len(os.sched_getaffinity(0))


def who(rank: int = 0, size: int = 1) -> tuple[int, int]:
    return rank, size


def unstorable() -> Any:
    return (each for each in [1])


def spawn_child() -> int:
    """A grandchild that would outlive its agent if nobody saw to it."""
    import subprocess

    return subprocess.Popen(["sleep", "600"]).pid


def mine(seconds: float) -> dict[str, Any]:
    """Report what this process may use, and when it ran."""
    start = time.time()
    time.sleep(seconds)
    names = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "OMP_NUM_THREADS")
    shown: dict[str, Any] = {name: os.environ.get(name) for name in names}
    cores = sorted(os.sched_getaffinity(0))
    return shown | {"pid": os.getpid(), "cores": cores, "start": start, "end": time.time()}


def shout(text: str) -> None:
    print(text)
    time.sleep(0.05)


def unless(number: int, wrong: int) -> int:
    if number == wrong:
        raise ValueError(number)
    return number


def close_pipes() -> None:
    """Close everything but the standard streams, as a daemon does, and stay."""
    os.closerange(3, 100)
    time.sleep(600)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def wait_with_child(file: str) -> None:
    child = subprocess.Popen(["sleep", "60"])
    Path(file).write_text(str(child.pid))
    child.wait()


def draw(seconds: float) -> tuple[float, float]:
    time.sleep(seconds)
    return float(np.random.random()), random.random()
