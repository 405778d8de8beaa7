"""Planned maintenance beside the native API: what operators enter once, and everybody sees."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Request
from pydantic import BaseModel, ConfigDict, Field

from qtide.service.apis.api import Api
from qtide.service.apis.forms import MOST_FORM, inline_schema, refusals
from qtide.service.apis.request_gate import Authenticator, read_body, validated
from qtide.service.bulk import read_form_alone
from qtide.service.configuration import MaintenanceWindow
from qtide.service.service import Service
from qtide.service.task import Caller, check_operates

Moment = Annotated[float, Field(ge=0, le=1e11, allow_inf_nan=False)]
"""Seconds since 1970."""


class MaintenancePlanForm(BaseModel):
    """When a device starts no tasks, and why."""

    model_config = ConfigDict(extra="forbid")

    device: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,63}$")]
    start: Moment
    end: Moment
    reason: Annotated[str, Field(max_length=200)] | None = None


class PlannedForm(MaintenanceWindow):
    """Maintenance that was planned just now."""

    broken_promises: int
    """How many waiting tasks were promised a start that they will not get."""


def maintenance_api(service: Service, access: Authenticator) -> Api:
    """Make the API."""
    router = APIRouter(prefix="/v1/maintenance", responses=refusals(), tags=["devices"])
    caller_of = Depends(access.caller)

    @router.get("", response_model=list[MaintenanceWindow])
    async def list_maintenance(caller: Caller = caller_of) -> list[MaintenanceWindow]:
        """What is planned, or under way, for the devices that I may use."""
        found = service.offered("native", caller)
        return [window for device in found for window in device.maintenance]

    @router.post(
        "",
        status_code=201,
        response_model=PlannedForm,
        openapi_extra=inline_schema(MaintenancePlanForm),
    )
    async def plan_maintenance(request: Request, caller: Caller = caller_of) -> PlannedForm:
        """Plan a time at which a device starts no tasks. For operators."""
        check_operates(caller)
        body = await read_body(request, MOST_FORM)
        words, _ = await service.bulk.do(read_form_alone, body or b"{}", caller.user)
        form = validated(MaintenancePlanForm, words)
        planned, broken = await service.operations.plan_maintenance(
            caller, form.device, form.start, form.end, form.reason
        )
        return PlannedForm(**planned.model_dump(), broken_promises=broken)

    @router.delete("/{number}", status_code=204)
    async def cancel_maintenance(
        number: Annotated[int, Path(ge=1, lt=2**63)], caller: Caller = caller_of
    ) -> None:
        """Cancel planned maintenance, or end it early. For operators."""
        await service.operations.cancel_maintenance(caller, number)

    return Api("/v1/maintenance", router)
