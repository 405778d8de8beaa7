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

from qtide import __version__
from qtide.broker.doors.access import Access, describe_tokens
from qtide.broker.doors.admission import Gate, admission_door
from qtide.broker.doors.errors import refused
from qtide.broker.doors.iqm import iqm_door
from qtide.broker.doors.limits import BodyLimit
from qtide.broker.doors.native import native_door
from qtide.broker.service import Broker
from qtide.broker.tokens import Register
from qtide.errors import PhaseError, QtideError


def application(broker: Broker) -> FastAPI:
    """The application for a broker, which it opens and closes."""
    settings = broker.configuration
    register = Register(broker.store, settings.operators)
    gate = Gate(broker, register, settings.slurm) if settings.slurm else None
    app = FastAPI(title="qtide", version=__version__, lifespan=_life(broker, gate), redoc_url=None)
    access = Access(register, anonymous=settings.anonymous)
    app.include_router(native_door(broker, access))
    app.include_router(iqm_door(broker, access))
    if gate:
        broker.drains.withhold = gate.withhold
        app.include_router(admission_door(gate))
    for kind in (QtideError, PhaseError, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, refused)
    app.add_middleware(BodyLimit, most=settings.most_bytes)
    _open_to_all(app, broker)
    describe_tokens(app)
    return app


def _life(broker: Broker, gate: Gate | None) -> Any:
    """From the first to the last request."""

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        await broker.open()
        watch = asyncio.create_task(gate.watch()) if gate else None
        try:
            yield
        finally:
            if gate and watch:
                watch.cancel()
                gate.close()
            await broker.close()

    return life


def _open_to_all(app: FastAPI, broker: Broker) -> None:
    @app.get("/health", tags=["operation"])
    async def health() -> dict[str, str]:
        """Whether the service answers, and the state of each device."""
        return {name: machine.state for name, machine in broker.machines.items()}

    @app.get("/metrics", tags=["operation"], response_class=PlainTextResponse)
    async def metrics() -> PlainTextResponse:
        """Figures for Prometheus."""
        text = broker.metrics.text(broker.machines.values())
        return PlainTextResponse(text)
