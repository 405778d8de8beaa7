"""Run in the checker's own environment: validates crates, with contexts from a file, not the web.

Arguments: the file of contexts, then PROFILE=CRATE for each crate. Prints, as JSON, the issues of
each crate and how many checks there were.
"""

import json
import sys
from pathlib import Path
from typing import Any

from rocrate_validator import services
from rocrate_validator.models import Severity
from rocrate_validator.utils.http import HttpRequester

OK, MISSING = 200, 404


class Answer:
    """What the web would say."""

    def __init__(self, url: str, found: Any) -> None:
        self.url = url
        self.status_code = MISSING if found is None else OK
        self.ok = found is not None
        self.headers = {"Content-Type": "application/ld+json"}
        self.text = json.dumps(found)
        self.content = self.text.encode()

    def json(self) -> Any:
        return json.loads(self.text)


def validated(profile: str, crate: str) -> dict[str, Any]:
    settings = services.ValidationSettings(
        rocrate_uri=crate, profile_identifier=profile, requirement_severity=Severity.REQUIRED
    )
    result = services.validate(settings)
    issues = [f"{each.check.identifier}: {each.message}" for each in result.get_issues()]
    return {"issues": issues, "checks": len(result.executed_checks)}


def main(contexts: str, *crates: str) -> None:
    known = json.loads(Path(contexts).read_text())

    def get(_: Any, url: str, *args: Any, **kwargs: Any) -> Answer:
        return Answer(url, known.get(url))

    HttpRequester.get = HttpRequester.head = get
    pairs = [each.split("=", 1) for each in crates]
    print(json.dumps({crate: validated(profile, crate) for profile, crate in pairs}))


main(*sys.argv[1:])
