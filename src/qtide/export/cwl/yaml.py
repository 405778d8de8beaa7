"""YAML for the files of a workflow: nested names and lists, with JSON's notation of values."""

from __future__ import annotations

import json
from typing import Any


def yaml(value: Any, depth: int = 0) -> str:
    """The text of a value."""
    if not (isinstance(value, dict | list) and value):
        return json.dumps(value) + "\n"
    margin = "  " * depth
    if isinstance(value, dict):
        return "".join(f"{margin}{name}:{_below(each, depth)}" for name, each in value.items())
    return "".join(f"{margin}- {yaml(each, depth + 1).lstrip()}" for each in value)


def _below(value: Any, depth: int) -> str:
    nested = isinstance(value, dict | list) and value
    return f"\n{yaml(value, depth + 1)}" if nested else f" {yaml(value)}"
