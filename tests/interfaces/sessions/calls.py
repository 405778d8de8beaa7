"""Functions that sessions of the tests call."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

import qtide


def square(number: int) -> int:
    return number * number


def refuse(number: int) -> int:
    raise ValueError(f"no {number}")


def taken(value: Any) -> bool:
    return value is not None


def marked(folder: str, number: int) -> int:
    with (Path(folder) / "marks").open("a") as marks:
        marks.write(f"{number} ")
    return number


def lock(_: Any = None) -> Any:
    return threading.Lock()


def kill_node(flag: str) -> str:
    """The first call takes its node with it."""
    try:
        Path(flag).touch(exist_ok=False)
    except FileExistsError:
        return "done"
    os._exit(1)


def kill_node_at(number: int, fatal: int) -> int:
    if number == fatal:
        os._exit(1)
    return number


def nested() -> None:
    with qtide.session(cluster="simulated") as inner:
        inner.submit(square, 1)


def caused() -> None:
    raise ValueError("the effect") from KeyError("the cause")


def caused_by_a_lock(_: Any = None) -> None:
    error = ValueError("the effect")
    error.__cause__ = RuntimeError(threading.Lock())
    raise error


def large(number: int) -> Any:
    return np.full(100_000, number)


class Tagged:
    """An object that contains a set, whose order differs from process to process."""

    def __init__(self) -> None:
        self.tags = {"alpha", "beta", "gamma", "delta", "epsilon"}
        self.nested = [frozenset(("one", "two")), {"key": {("three", "four"), ("five", "six")}}]
        self.all = {self}


def tags_of(tagged: Tagged) -> int:
    return len(tagged.tags)


def wait_for(file: str) -> bool:
    limit = time.monotonic() + 60
    while not Path(file).exists() and time.monotonic() < limit:
        time.sleep(0.01)
    return Path(file).exists()
