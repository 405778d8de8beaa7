"""The APIs: each translates between its clients and the service, and decides nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from qtide.core.plugins import Plugins

APIS: Plugins[Callable[[Any, Any], Any]] = Plugins("qtide.apis", "API")
"""Each makes an `Api` (see api.py) of a service; configurations need only the names."""
