"""The APIs, which only translate between their clients and the service."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from qtide.core.plugins import Plugins

APIS: Plugins[Callable[[Any, Any], Any]] = Plugins("qtide.apis", "API")
"""Callables that make an `Api` (see api.py) for a service; configurations need only the names."""
