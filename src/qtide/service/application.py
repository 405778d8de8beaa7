"""The service as a web application: the registered APIs and the middleware."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import PlainTextResponse
from starlette.exceptions import HTTPException

from qtide.errors import PhaseError, QtideError
from qtide.service.apis import APIS
from qtide.service.apis.access import Access, describe_tokens
from qtide.service.apis.api import Api
from qtide.service.apis.errors import refuser
from qtide.service.apis.gate import Gate, Watch
from qtide.service.limits.settings import Limits
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
    refuse = refuser(apis, service.metrics.refused)
    for kind in (QtideError, PhaseError, RequestValidationError, HTTPException, sqlite3.Error):
        app.add_exception_handler(kind, refuse)
    app.add_middleware(
        Gate,
        access=access,
        limits=settings.limits,
        most_bytes=settings.most_bytes,
        refuse=refuse,
        public=[path for api in apis for path in api.public],
        watch=_watching(service),
    )
    _add_public_routes(app, service, access)
    describe_tokens(app)
    return app


def _watching(service: Service) -> Watch:
    """How the gate learns of other limits."""

    def watch(adopt: Callable[[Limits, int], None]) -> None:
        service.on_reconfigured.append(lambda new: adopt(new.limits, new.most_bytes))

    return watch


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


def _add_public_routes(app: FastAPI, service: Service, access: Access) -> None:
    @app.get("/health", tags=["operation"], responses={503: {"model": dict[str, str]}})
    async def health(response: Response) -> dict[str, str]:
        """The state of each device; 503 if nothing can be stored, with the reason in `store`."""
        states = {name: device.state for name, device in service.devices.items()}
        if (trouble := service.storage.trouble()) is not None:
            response.status_code = 503
            states["store"] = trouble
        return states

    @app.get("/metrics", tags=["operation"], response_class=PlainTextResponse)
    async def metrics(request: Request) -> PlainTextResponse:
        """Metrics for Prometheus; accounts are named to operators only."""
        accounts = access.operates(request.scope)
        return PlainTextResponse(service.metrics_text(accounts=accounts))
