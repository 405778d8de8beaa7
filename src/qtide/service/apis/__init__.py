"""The APIs: each translates between its clients and the service, and decides nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qtide.core.plugins import Plugins

if TYPE_CHECKING:
    from qtide.service.apis.api import MakeApi

APIS: Plugins[MakeApi] = Plugins("qtide.apis", "API")
