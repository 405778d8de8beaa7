"""The routes of the page: signing in, who sees what, and a stream that can be resumed."""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from qtide.backends.payloads.payload import Burst
from qtide.service.local_service import LocalService
from qtide.service.page.page_api import STATIC
from tests.interfaces.cli.inside import printed
from tests.interfaces.export.test_trace import checked
from tests.service.postgres import store_setting
from tests.service.serving import BURSTS, Serve, wait_until


def ask(
    service: LocalService, method: str, path: str, form: Any = None, **fields: str
) -> tuple[int, dict[str, str], Any]:
    """Send a request; return status, head and body."""
    with closing(http.client.HTTPConnection("127.0.0.1", service.port, timeout=30)) as line:
        head = {name.replace("_", "-"): value for name, value in fields.items()}
        line.request(method, path, None if form is None else json.dumps(form), head)
        answer = line.getresponse()
        body = answer.read()
        words = dict(answer.getheaders())
        is_json = "json" in words.get("content-type", "")
        return answer.status, words, json.loads(body) if is_json else body


class Stream:
    """An open stream of events."""

    def __init__(self, service: LocalService, token: str, after: str = "") -> None:
        self.line = http.client.HTTPConnection("127.0.0.1", service.port, timeout=30)
        head = {"Authorization": f"Bearer {token}"}
        self.line.request("GET", f"/v1/events?after={after}", headers=head)
        self.answer = self.line.getresponse()
        assert self.answer.status == 200

    def events(self) -> Iterator[tuple[str, str, dict[str, Any]]]:
        """Its events, as kind, id and words, until it ends."""
        kind, last = "message", ""
        for line in self.answer:
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name == "event":
                kind = value
            elif name == "id":
                last = value
            elif name == "data":
                yield kind, last, json.loads(value)
                kind = "message"


def test_the_page_comes_from_here_alone(service: LocalService) -> None:
    status, head, body = ask(service, "GET", "/")
    assert status == 200
    assert b'src="page/main.js"' in body
    policy = head["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    for file in STATIC.iterdir():
        status, head, body = ask(service, "GET", f"/page/{file.name}")
        assert (status, body) == (200, file.read_bytes())
        assert ask(service, "GET", f"/page/{file.name}", If_None_Match=head["etag"])[0] == 304
        if file.suffix != ".svg":  # where the name of SVG itself is an address
            assert not re.search(rb"(src|href|url|fetch|import)[=( \"']*(https?:)?//", body)
        assert b"innerHTML" not in body
    assert ask(service, "GET", "/page/..%2fpage_api.py")[0] == 404
    assert ask(service, "GET", "/v1/me")[0] == 401


def test_a_cookie_signs_in_and_needs_the_pages_own_field_to_change_anything(
    service: LocalService,
) -> None:
    token = service.token("pam")
    status, head, _ = ask(service, "POST", "/page/session", {"token": token, "base": "/pre/fix/"})
    assert status == 204
    cookie, *terms = head["set-cookie"].split("; ")
    assert {"HttpOnly", "SameSite=Strict", "Path=/pre/fix/"} <= set(terms)
    assert ask(service, "GET", "/v1/me", Cookie=cookie)[2]["user"] == "pam"
    form = {"device": "dev", "format": "burst", "payload": {"seconds": 0.0}}
    assert ask(service, "POST", "/v1/tasks", form, Cookie=cookie)[0] == 403
    other = {"X_Qtide_Page": "1", "Sec_Fetch_Site": "cross-site"}
    assert ask(service, "POST", "/v1/tasks", form, Cookie=cookie, **other)[0] == 403
    own = {"X_Qtide_Page": "1", "Sec_Fetch_Site": "same-origin"}
    assert ask(service, "POST", "/v1/tasks", form, Cookie=cookie, **own)[0] == 201
    assert ask(service, "POST", "/page/session", {"token": "qtide_no", "base": "/"})[0] == 401
    wrong = {"token": token, "base": "/; Domain=elsewhere"}
    assert ask(service, "POST", "/page/session", wrong)[0] == 422


def test_a_link_works_once(service: LocalService) -> None:
    made = service.client("pat").call("POST", "/v1/links")
    key = made["path"].partition("key=")[2]
    status, head, _ = ask(service, "POST", "/page/session", {"key": key, "base": "/"})
    assert status == 204
    cookie = head["set-cookie"].partition(";")[0]
    assert ask(service, "GET", "/v1/me", Cookie=cookie)[2]["user"] == "pat"
    assert ask(service, "POST", "/page/session", {"key": key, "base": "/"})[0] == 401
    # the user who runs the service has no token, so it gets one
    made = service.operator().call("POST", "/v1/links")
    key = made["path"].partition("key=")[2]
    _, head, _ = ask(service, "POST", "/page/session", {"key": key, "base": "/"})
    cookie = head["set-cookie"].partition(";")[0]
    assert ask(service, "GET", "/v1/me", Cookie=cookie)[2]["operator"]


def test_a_link_that_a_page_makes_stands_for_the_pages_own_token(service: LocalService) -> None:
    """A new token would outlive the page's, and the job or the rights that it was given for."""
    token = service.token("pim", job=7)
    _, head, _ = ask(service, "POST", "/page/session", {"token": token, "base": "/"})
    cookie = head["set-cookie"].partition(";")[0]
    own = {"X_Qtide_Page": "1", "Sec_Fetch_Site": "same-origin"}
    made = ask(service, "POST", "/v1/links", {}, Cookie=cookie, **own)[2]
    form = {"key": made["path"].partition("key=")[2], "base": "/"}
    _, head, _ = ask(service, "POST", "/page/session", form)
    assert head["set-cookie"].partition(";")[0] == cookie
    assert cookie.endswith(token)


def test_links_of_one_user_do_not_end_those_of_others(service: LocalService) -> None:
    kept = service.client("quinn").call("POST", "/v1/links")
    mallory = service.client("mallory")
    lost, *_ = [mallory.call("POST", "/v1/links") for _ in range(11)]
    for made, status in ((kept, 204), (lost, 401)):
        form = {"key": made["path"].partition("key=")[2], "base": "/"}
        assert ask(service, "POST", "/page/session", form)[0] == status


def test_a_stream_is_resumed_with_what_was_missed_and_nothing_twice(service: LocalService) -> None:
    client = service.client("sue")
    token = client.access.token or ""
    stream = Stream(service, token)
    events = stream.events()
    kind, last, words = next(events)
    assert kind == "whole"
    assert {"dev", "annealer"} <= {each["name"] for each in words["devices"]}
    first = client.submit(Burst(0.0, 1), "dev", wait=10).id
    seen: list[str] = []
    while first not in [each["id"] for each in words["tasks"] if each["state"] == "done"]:
        kind, last, words = next(events)
        assert kind in ("message", "beat")
    stream.line.close()
    second = client.submit(Burst(0.0, 2), "dev", wait=10).id
    for kind, _, words in Stream(service, token, after=last).events():
        assert kind == "message"  # not everything anew
        seen += [each["id"] for each in words["tasks"]]
        if second in seen:
            break
    assert first not in seen
    # another life of the service, or an event that is not kept any more: everything anew
    for after in ("0badcafe-7", f"{last.partition('-')[0]}-0", "nonsense"):
        kind, _, _ = next(Stream(service, token, after=after).events())
        assert kind == "whole"


def test_users_see_their_own_and_operators_all(service: LocalService) -> None:
    streams = {
        "uma": Stream(service, service.token("uma", "physics")),
        "ops": Stream(service, service.token("olga", operator=True)),
    }
    found = {name: stream.events() for name, stream in streams.items()}
    for events in found.values():
        next(events)
    theirs = service.client("ulf", "chemistry").submit(Burst(0.0, 1), "dev", wait=10).id
    mine = service.client("uma", "physics").submit(Burst(0.0, 1), "dev", wait=10).id
    for name, events in found.items():
        seen: set[str] = set()
        while mine not in seen:
            seen |= {each["id"] for each in next(events)[2].get("tasks", ())}
        assert (theirs in seen) == (name == "ops")
    uma = service.client("uma", "physics")
    owners = {
        owner
        for column in uma.call("GET", "/v1/devices/dev/timeline")["columns"]
        for owner in column["busy"]
    }
    assert owners <= {"physics", "others"}
    assert len(uma.call("GET", "/v1/shares")["accounts"]) == 1
    for path in (f"/v1/tasks/{theirs}/story", f"/v1/tasks/{theirs}/drawing"):
        head = {"Authorization": f"Bearer {uma.access.token}"}
        assert ask(service, "GET", path, **head)[0] == 404
    head = {"Authorization": f"Bearer {service.token('olga', operator=True)}"}
    assert ask(service, "GET", f"/v1/tasks/{theirs}/story", **head)[0] == 200
    assert ask(service, "GET", f"/v1/tasks/{theirs}/drawing", **head)[0] == 404


def test_a_stream_gives_way_to_newer_connections_and_ends_with_the_service(serving: Serve) -> None:
    service = serving(f"{BURSTS}\n[limits]\nconnections_per_peer = 4\n")
    token = service.token("greta")
    streams = [Stream(service, token) for _ in range(4)]
    for each in streams:
        next(each.events())
    assert ask(service, "GET", "/v1/me", Authorization=f"Bearer {token}")[0] == 200
    assert [kind for kind, _, _ in streams[0].events() if kind != "beat"] == []  # it has ended
    assert service.stop() == 0


@pytest.fixture(params=["SQLite", "PostgreSQL"])
def store(request: pytest.FixtureRequest) -> Iterator[str]:
    """The setting of a store of either kind."""
    with store_setting(postgresql=request.param == "PostgreSQL") as setting:
        yield setting


def test_the_figures_agree_with_what_ran(serving: Serve, store: str) -> None:
    service = serving(BURSTS, store)
    client = service.client("ida", "physics")
    for _ in range(3):
        client.submit(Burst(0.4, 1), "dev", max_wait=30.0, wait=10)

    def recorded() -> bool:
        found = client.call("GET", "/v1/devices/dev/summary", {"span": "5min"})
        return bool(found["tasks"]["done"] == 3 and found["seconds"]["busy"] > 1.1)

    wait_until(recorded)
    found = client.call("GET", "/v1/devices/dev/summary", {"span": "5min"})
    assert (found["tasks"]["promised"], found["tasks"]["kept"]) == (3, 3)
    line = client.call("GET", "/v1/devices/dev/timeline", {"span": "5min"})
    used = sum(column["busy"].get("physics", 0.0) for column in line["columns"])
    assert used == pytest.approx(1.2, abs=0.2)
    recent = client.call("GET", "/v1/devices/dev/recent")["tasks"]
    assert [each["state"] for each in recent] == ["done"] * 3
    story = client.call("GET", f"/v1/tasks/{recent[0]['id']}/story")
    assert [each["what"].split()[0] for each in story] == [
        "submitted,",
        "promised",
        "began",
        "left",
        "done;",
    ]
    level = client.call("GET", "/v1/levels")["devices"][0]
    assert level["promises_kept"] == 1.0
    assert client.call("GET", "/v1/vitals")["commits"] > 3
    service.kill()  # the history survives
    service.start()
    again = service.client("ida", "physics").call("GET", "/v1/devices/dev/history")
    assert sum(each["tasks"]["done"] for each in again["periods"]) == 3


def test_a_device_is_exported_from_the_service(
    tmp_path: Path, service: LocalService, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = service.client("tess")
    for number in range(3):
        client.submit(Burst(0.05, number), "dev", name=f"t{number}", wait=10)
    path = "/v1/devices/dev/history"
    wait_until(lambda: client.call("GET", path)["periods"])
    monkeypatch.setenv("QTIDE_URL", service.url)
    monkeypatch.setenv("QTIDE_TOKEN", client.access.token or "")
    printed("export", "trace", "--device", "dev", "-o", tmp_path / "trace.json")
    events = checked(json.loads((tmp_path / "trace.json").read_text())["traceEvents"])
    ran = [each["name"] for each in events if each["ph"] == "X" and each["cat"] == "device"]
    assert ran == ["t0", "t1", "t2"]
    assert any(each["ph"] == "C" and each["name"] == "share of time" for each in events)


def test_levels_are_public_only_if_the_site_says_so(service: LocalService) -> None:
    status, _, said = ask(service, "GET", "/levels")
    assert status == 404
    assert "this service does not publish its levels" in str(said)
