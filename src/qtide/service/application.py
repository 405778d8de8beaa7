"""The service as a web application: the doors, and what stands before all of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.responses import PlainTextResponse
from starlette.exceptions import HTTPException

from qtide.errors import PhaseError, QtideError
from qtide.service.apis.access import Access, describe_tokens
from qtide.service.apis.admission import Gate, admission_door
from qtide.service.apis.errors import refused
from qtide.service.apis.iqm.api import iqm_door
from qtide.service.apis.limits import BodyLimit
from qtide.service.apis.native import native_door
from qtide.service.service import Service
from qtide.service.tokens import Register
from qtide.version import __version__


def application(service: Service) -> FastAPI:
    """The application for a service, which it opens and closes."""
    settings = service.configuration
    register = Register(service.store, settings.operators)
    gate = Gate(service, register, settings.slurm) if settings.slurm else None
    app = FastAPI(title="qtide", version=__version__, lifespan=_life(service, gate), redoc_url=None)
    access = Access(register, anonymous=settings.anonymous)
    app.include_router(native_door(service, access))
    app.include_router(iqm_door(service, access))
    if gate:
        service.drains.withhold = gate.withhold
        app.include_router(admission_door(gate))
    for kind in (QtideError, PhaseError, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, refused)
    app.add_middleware(BodyLimit, most=settings.most_bytes)
    _open_to_all(app, service)
    describe_tokens(app)
    return app


def _life(service: Service, gate: Gate | None) -> Any:
    """From the first to the last request."""

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        await service.open()
        watch = asyncio.create_task(gate.watch()) if gate else None
        try:
            yield
        finally:
            if gate and watch:
                watch.cancel()
                gate.close()
            await service.close()

    return life


def _open_to_all(app: FastAPI, service: Service) -> None:
    @app.get("/health", tags=["operation"])
    async def health() -> dict[str, str]:
        """Whether the service answers, and the state of each device."""
        return {name: machine.state for name, machine in service.machines.items()}

    @app.get("/metrics", tags=["operation"], response_class=PlainTextResponse)
    async def metrics() -> PlainTextResponse:
        """Figures for Prometheus."""
        text = service.metrics.text(service.machines.values())
        return PlainTextResponse(text)
