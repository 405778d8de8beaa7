"""The two streams of a command, and JSON for scripts."""

from __future__ import annotations

import json
from typing import Any

import typer
from rich.console import Console

out = Console(soft_wrap=True)
err = Console(stderr=True, soft_wrap=True)


def as_json(value: Any) -> None:
    """One JSON document on stdout."""
    typer.echo(json.dumps(value, indent=2))
