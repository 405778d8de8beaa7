"""Calls the IQM API as a user, by plain HTTP."""

import json
from dataclasses import dataclass
from typing import Any

import urllib3

LIMIT = 60.0


@dataclass(frozen=True)
class Caller:
    """A caller with a token, or without."""

    url: str
    token: str | None

    def __call__(
        self, method: str, path: str, body: Any = None, status: int = 200, **terms: Any
    ) -> Any:
        """The service's response; the status has to be as expected."""
        head = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        data = None if body is None else json.dumps(body).encode()
        url = f"{self.url}/api/v1/{path}"
        answer = urllib3.request(
            method, url, body=data, headers=head, fields=terms or None, timeout=LIMIT
        )
        assert answer.status == status, answer.data
        return answer.json() if answer.data else None
