"""Requests generated from the service's own description: none may cause a server error."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from schemathesis import Case
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from qtide.backends.payloads.payload import Burst
from qtide.service.local_service import LocalService
from tests.service.serving import BURSTS

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
STAR = '[devices.star]\nkind = "star"\n'
PLACES = {"device": "dev", "name": "dev", "computer": "star", "calibration": "default"}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalService]:
    service = LocalService(tmp_path_factory.mktemp("openapi"), BURSTS + STAR).start()
    yield service
    assert [line for line in service.log() if line["level"] == "error"] == []
    service.stop()


@pytest.fixture(scope="module")
def things(served: LocalService) -> dict[str, Any]:
    """What the generated requests should find: a user with a finished task."""
    client = served.client("fuzz")
    done = client.submit(Burst(0.0, 1), "dev", wait=10)
    return {"token": client.access.token, "id": done.id}


def test_nothing_that_is_sent_makes_the_service_fail(
    served: LocalService, things: dict[str, Any]
) -> None:
    schema = schemathesis.openapi.from_url(f"{served.url}/openapi.json")
    operations = [found.ok() for found in schema.get_all_operations() if isinstance(found, Ok)]
    assert len(operations) > 20
    for operation in operations:
        _send_all(operation.as_strategy(), things)


def test_without_a_token_nothing_is_answered_but_what_is_public(
    served: LocalService, things: dict[str, Any]
) -> None:
    schema = schemathesis.openapi.from_url(f"{served.url}/openapi.json")
    for found in schema.get_all_operations():
        if isinstance(found, Ok) and found.ok().path not in ("/health", "/metrics"):
            _send_all(found.ok().as_strategy(), things | {"token": None}, 5)


def _send_all(cases: SearchStrategy[Case[Any]], things: dict[str, Any], examples: int = 8) -> None:
    head = {"Authorization": f"Bearer {things['token']}"} if things["token"] else {}

    @settings(max_examples=examples, suppress_health_check=list(HealthCheck))
    @given(cases, st.booleans())
    def send(case: Case[Any], meaningful: bool) -> None:
        if meaningful:
            _lead_somewhere(case, PLACES | things)
        answer = case.call_and_validate(headers=head, checks=CHECKS, timeout=60)
        assert things["token"] or answer.status_code in (401, 413, 431)

    send()


def _lead_somewhere(case: Case[Any], known: dict[str, Any]) -> None:
    """Insert existing names, so that requests get beyond the first checks."""
    for name, value in (case.path_parameters or {}).items():
        case.path_parameters[name] = known.get(name, value)
    if isinstance(case.body, dict) and "device" in case.body:
        case.body["device"] = known["device"]
