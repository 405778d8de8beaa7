"""Names of tasks and of APIs: looked up by index, never by a scan."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from fastapi import APIRouter, FastAPI

from qtide.backends.payloads.payload import Encoded
from qtide.core.plugins import Plugins
from qtide.core.world.virtual import VirtualWorld
from qtide.service import queries, records
from qtide.service.apis.api import Api, RefusalBody
from qtide.service.apis.request_gate import Authenticator
from qtide.service.configuration import Configuration
from qtide.service.records import Draft
from qtide.service.server import application
from qtide.service.service import Service
from qtide.service.store import in_memory
from qtide.service.task import Caller, Conflict, NotFound
from qtide.service.virtual_service import SimulatedDevice, SimulatedStore
from tests.service.device.test_queue import task

ADA = Caller("ada")
FIRST, SECOND = "abcd0000-0000-4000-8000-000000000000", "abcd1111-0000-4000-8000-000000000000"


@pytest.fixture
def service() -> Service:
    """A service with two tasks of ada, and one of bob in between; it is not started."""
    world, rows = VirtualWorld(), in_memory()
    for number, (name, user) in enumerate(((FIRST, "ada"), ("abcd05", "bob"), (SECOND, "ada"))):
        draft = Draft(Encoded("burst", b"{}"), "", str(number))
        records.insert(task(name, user=user), draft)(rows)
    configuration = Configuration.model_validate({"devices": {"dev": {"kind": "burst"}}})
    store = SimulatedStore(world, connection=rows)
    return Service(configuration, world, store, SimulatedDevice(world))


def test_a_prefix_of_an_id_is_enough_if_it_is_unique_among_the_users_tasks(
    service: Service,
) -> None:
    assert service.task(ADA, "abcd0").id == FIRST
    assert service.task(ADA, SECOND).id == SECOND
    with pytest.raises(Conflict, match="several of your tasks begin with 'abcd'; give more"):
        service.task(ADA, "abcd")
    with pytest.raises(NotFound, match="you have no task 'abcd05'"):
        service.task(ADA, "abcd05")
    with pytest.raises(NotFound, match="give 4 characters"):
        service.task(ADA, "abc")
    with pytest.raises(Conflict, match="several tasks begin with 'abcd0'"):
        service.task(Caller("root", operator=True), "abcd0")


def test_an_id_is_looked_up_by_its_index() -> None:
    seen: list[str] = []
    rows = in_memory()
    rows.set_trace_callback(seen.append)
    queries.find_by_prefix("ada", "abcd")(rows)
    plan = rows.execute(f"EXPLAIN QUERY PLAN {seen[-1]}").fetchall()
    assert [row["detail"] for row in plan] == [
        "SEARCH tasks USING INDEX sqlite_autoindex_tasks_1 (id>? AND id<?)"
    ]


def fax_api(service: Service, access: Authenticator) -> Api:
    """An API of another package."""
    router = APIRouter(prefix="/fax")

    @router.get("/devices")
    async def devices() -> list[str]:
        return [each.name for each in service.offered("fax")]

    @router.get("/tasks/{name}")
    async def get_task(name: str) -> Any:
        return service.task(ADA, name).id

    def refusal(said: RefusalBody) -> RefusalBody:
        return {"fax": said["message"].upper()}

    return Api("/fax", router, refusal, public=["/fax/"])


def test_a_registered_api_is_served_with_its_own_format_of_errors(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    names, load = Plugins.names, Plugins.load
    monkeypatch.setattr(Plugins, "names", lambda self: [*names(self), "fax"])
    monkeypatch.setattr(
        Plugins, "load", lambda self, name: fax_api if name == "fax" else load(self, name)
    )
    app, _ = application(service)
    assert get(app, "/v1/tasks")[0] == 401
    assert get(app, "/fax/devices") == (200, ["dev"])
    status, said = get(app, "/fax/tasks/abcd")
    assert (status, said["fax"][:21]) == (409, "SEVERAL OF YOUR TASKS")
    assert get(app, "/v1/tasks")[1]["error"] == "not_allowed"
    assert get(app, "/api/v1/about")[1]["error_code"] == "not_allowed"


def get(app: FastAPI, path: str) -> tuple[int, Any]:
    """An application's response, without a server."""
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b""}

    async def send(message: Any) -> None:
        sent.append(message)

    words = {"type": "http", "method": "GET", "path": path, "query_string": b"", "headers": []}
    asyncio.run(app(words, receive, send))
    return sent[0]["status"], json.loads(b"".join(each.get("body", b"") for each in sent))
