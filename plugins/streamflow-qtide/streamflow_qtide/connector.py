"""The connector: a location whose steps compute on a device of the vQPU service."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import MutableMapping, MutableSequence
from typing import Any
from urllib.error import URLError
from urllib.parse import urlsplit, urlunsplit
from urllib.request import Request, urlopen

from streamflow.core.deployment import ExecutionLocation
from streamflow.core.exception import WorkflowDefinitionException, WorkflowExecutionException
from streamflow.core.scheduling import AvailableLocation
from streamflow.deployment.connector.local import LocalConnector

LIMIT = 30.0
"""Seconds for the service to answer."""

SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$id": "https://qtide.example/schemas/streamflow/connector.json",
    "type": "object",
    "properties": {
        "url": {
            "type": "string",
            "title": "URL",
            "description": "A device of the vQPU service, as http://HOST:PORT/DEVICE",
        },
        "slots": {
            "type": "integer",
            "title": "Slots",
            "description": "Steps that run at the same time",
            "minimum": 1,
            "default": 1,
        },
    },
    "required": ["url"],
    "additionalProperties": False,
}


class QuantumConnector(LocalConnector):
    """Steps run beside StreamFlow; their payloads run where the URL says."""

    def __init__(
        self,
        deployment_name: str,
        config_dir: str,
        url: str,
        slots: int = 1,
        transferBufferSize: int = 2**16,  # noqa: N803 - StreamFlow's own name
    ) -> None:
        super().__init__(deployment_name, config_dir, transferBufferSize)
        parts = urlsplit(url)
        self._url = url
        self._device = parts.path.strip("/")
        self._service = urlunsplit((parts.scheme, parts.netloc, "", "", ""))
        self._slots = slots
        if parts.scheme not in ("http", "https") or not self._device:
            raise WorkflowDefinitionException(
                f"The url of {deployment_name} should be http://HOST:PORT/DEVICE, not {url}"
            )

    @classmethod
    def get_schema(cls) -> str:
        """Return the schema of its part of streamflow.yml."""
        return json.dumps(SCHEMA)

    async def deploy(self, external: bool) -> None:
        """Ask the service for the device, so that a wrong mapping fails before its first step."""
        await super().deploy(external)
        try:
            await asyncio.to_thread(self._ask)
        except URLError as error:
            raise WorkflowExecutionException(
                f"The vQPU service {self._service} does not have {self._device}: {error}"
            ) from error

    async def get_available_locations(
        self, service: str | None = None
    ) -> MutableMapping[str, AvailableLocation]:
        """Offer as many slots as the mapping says, however many cores this host has."""
        name = f"vqpu-{self._device}"
        location = AvailableLocation(
            name=name,
            deployment=self.deployment_name,
            service=service,
            hostname="localhost",
            local=True,
            slots=self._slots,
        )
        return {name: location}

    async def run(
        self,
        location: ExecutionLocation,
        command: MutableSequence[str],
        environment: MutableMapping[str, str] | None = None,
        *more: Any,
        **terms: Any,
    ) -> tuple[str, int] | None:
        """Run a command, with the device in its environment."""
        device = {
            "QTIDE_URL": self._service,
            "QTIDE_DEVICE": self._device,
            "QTIDE_QPU": self._url,
        }
        return await super().run(location, command, (environment or {}) | device, *more, **terms)

    def _ask(self) -> None:
        head = (
            {"Authorization": f"Bearer {token}"} if (token := os.environ.get("QTIDE_TOKEN")) else {}
        )
        asked = Request(f"{self._service}/v1/devices/{self._device}", headers=head)
        urlopen(asked, timeout=LIMIT).close()
