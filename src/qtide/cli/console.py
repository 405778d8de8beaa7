"""The two streams of a command, and JSON for scripts."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import IO, Any

import typer
from rich.console import Console

out = Console(soft_wrap=True)
err = Console(stderr=True, soft_wrap=True)


_reserved: list[IO[str]] = []
"""Stdout itself, while it is for JSON alone."""


@contextmanager
def stdout_for_json(*, wanted: bool = True) -> Iterator[None]:
    """Within, whatever else prints to stdout, a program or a library, prints to stderr instead."""
    if not wanted or _reserved:
        yield
        return
    sys.stdout.flush()
    _reserved.append(os.fdopen(os.dup(1), "w") if sys.stdout is sys.__stdout__ else sys.stdout)
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        _reserved.pop().flush()


def as_json(value: Any, indent: int | None = 2) -> None:
    """One JSON document on stdout."""
    typer.echo(json.dumps(value, indent=indent), file=_reserved[-1] if _reserved else None)
