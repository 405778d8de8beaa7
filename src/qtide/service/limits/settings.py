"""The limits of a service, as its configuration sets them in `[limits]`."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Count = Annotated[int, Field(ge=1)]
Bytes = Annotated[int, Field(ge=1024)]
Time = Annotated[float, Field(gt=0, allow_inf_nan=False)]

MB = 2**20


class Limits(BaseModel):
    """A peer is a user of this host, or the address of another one; a user has a token."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    connections: Count = 4096
    """Open at once, of all peers; never more than the process may open files."""
    connections_per_peer: Count = 512
    header_bytes: Bytes = 32 * 1024
    header_seconds: Time = 10.0
    """Within which the head of a request has to arrive."""
    body_seconds: Time = 60.0
    """Within which the rest of a request has to arrive."""
    stalled_seconds: Time = 15.0
    """Without any progress of a sender or a reader."""
    requests_per_user: Count = 1000
    """Being answered at once, including those that wait for a task's end."""
    requests_per_second_per_user: Count = 200
    """While others ask as well; whoever asks more often is slowed down."""
    bytes_in_flight: Bytes = 96 * MB
    """Of requests and answers of all users, held in memory at once."""
    bytes_in_flight_per_user: Bytes = 40 * MB
    bytes_per_second_per_user: Bytes = 16 * MB
    """Of requests and answers, after the first so many; whoever is faster is slowed down."""
    refusals_per_second: Count = 100
    """Answers to requests of one peer without a valid token; more of them wait."""
    validators: Count = 2
    """Processes per device that check payloads; no user occupies all of them."""
    validation_seconds: Time = 30.0
    """Per user and minute, of checking payloads."""
    stored_bytes_per_user: Bytes = 1024 * MB
    """Payloads and answers of a user on disk; no user gets more than a quarter of what is free."""
    stored_bytes_per_second_per_user: Bytes = 4 * MB
    """After the first 16 MB; whoever stores faster is slowed down, so that others are not."""
    disk_reserve: Annotated[int, Field(ge=0)] = 64 * MB
    """Free space that new tasks do not use: it is for the answers of accepted ones."""
    admissions_per_user: Count = 256
    """Requests of a user's jobs for a token that wait at once."""
    tokens_per_job: Count = 8
    """Valid at once; a job that asks again gets the token that it has."""
