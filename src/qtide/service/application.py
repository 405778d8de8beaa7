"""The service as a web application: the registered APIs and the middleware."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.responses import PlainTextResponse
from starlette.exceptions import HTTPException

from qtide.errors import PhaseError, QtideError
from qtide.service.apis import APIS
from qtide.service.apis.access import Access, describe_tokens
from qtide.service.apis.api import Api
from qtide.service.apis.errors import refuser
from qtide.service.apis.limits import BodyLimit
from qtide.service.service import Service
from qtide.version import __version__


def application(service: Service) -> FastAPI:
    """The application for a service, which it opens and closes."""
    settings = service.configuration
    access = Access(service.register, anonymous=settings.anonymous)
    made = (APIS.load(name)(service, access) for name in APIS.names())
    apis = [api for api in made if api is not None]
    app = FastAPI(
        title="qtide", version=__version__, lifespan=_lifespan(service, apis), redoc_url=None
    )
    for api in apis:
        app.include_router(api.router)
    for kind in (QtideError, PhaseError, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, refuser(apis))
    app.add_middleware(BodyLimit, most=settings.most_bytes)
    _add_public_routes(app, service)
    describe_tokens(app)
    return app


def _lifespan(service: Service, apis: Sequence[Api]) -> Any:
    """The service is open from the first to the last request."""

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        await service.open()
        try:
            async with AsyncExitStack() as lives:
                for api in apis:
                    await lives.enter_async_context(api.life())
                yield
        finally:
            await service.close()

    return life


def _add_public_routes(app: FastAPI, service: Service) -> None:
    @app.get("/health", tags=["operation"])
    async def health() -> dict[str, str]:
        """Whether the service answers, and the state of each device."""
        return {name: device.state for name, device in service.devices.items()}

    @app.get("/metrics", tags=["operation"], response_class=PlainTextResponse)
    async def metrics() -> PlainTextResponse:
        """Metrics for Prometheus."""
        return PlainTextResponse(service.metrics.text(service.devices.values()))
