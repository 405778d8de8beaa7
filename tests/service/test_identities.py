"""People who are known by tokens of an identity provider, by the kernel, and by their groups."""

from __future__ import annotations

import asyncio
import grp
import json
import pwd
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from subprocess import PIPE
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from qtide.backends.client.client import Client, ServiceFailed
from qtide.backends.clusters.slurm.prolog import token_signature
from qtide.backends.payloads.payload import Burst
from qtide.service import identities
from qtide.service.admission import Unproven, Unreachable
from qtide.service.identities import OidcTokens, SigningKeys
from qtide.service.local_service import LocalService
from qtide.service.tokens import with_members
from tests.interfaces.cli.test_service import qtide
from tests.service.admission.users import User

AUDIENCE = "qtide"


class Issuer:
    """A small identity provider: it signs real tokens and publishes its public keys."""

    def __init__(self) -> None:
        self.keys: dict[str, Any] = {}
        self.asked = 0
        self.rotate("first")
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), _publishing(self))
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def rotate(self, name: str) -> None:
        """Sign with a new key from now on; the old one is withdrawn."""
        kind = ec.generate_private_key(ec.SECP256R1()) if self.keys else _rsa()
        self.keys = {name: kind}

    def token(self, key: Any = None, kid: str | None = None, **claims: Any) -> str:
        ((name, own),) = self.keys.items()
        now = int(time.time())
        words = {"iss": self.url, "aud": AUDIENCE, "iat": now, "exp": now + 60}
        words |= {"preferred_username": "ada", "project": "physics", "groups": ["staff"]} | claims
        signing = key or own
        algorithm = "RS256" if isinstance(signing, rsa.RSAPrivateKey) else "ES256"
        kept = {name: value for name, value in words.items() if value is not None}
        return jwt.encode(kept, signing, algorithm, {"kid": kid or name})

    def published(self) -> bytes:
        self.asked += 1
        found = []
        for name, key in self.keys.items():
            rs = isinstance(key, rsa.RSAPrivateKey)
            kind = jwt.algorithms.RSAAlgorithm if rs else jwt.algorithms.ECAlgorithm
            public = json.loads(kind.to_jwk(key.public_key()))
            found.append(public | {"kid": name, "alg": "RS256" if rs else "ES256", "use": "sig"})
        return json.dumps({"keys": found}).encode()


def _rsa() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def _publishing(issuer: Issuer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(issuer.published())

        def log_message(self, *_: object) -> None:
            """Log nothing: the test asks the issuer itself."""

    return Handler


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    made = Issuer()
    yield made
    made.server.shutdown()


@pytest.fixture(scope="module")
def service(issuer: Issuer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalService]:
    words = f"""
[identities.campus]
kind = "oidc"
issuer = "{issuer.url}"
audience = "{AUDIENCE}"
jwks = "{issuer.url}/keys"
account_claim = "project"
[identities.host]
kind = "unix"
[devices.dev]
kind = "burst"
"""
    operators = 'operators = ["@qpu-admins"]'
    with LocalService(tmp_path_factory.mktemp("service"), words, operators) as served:
        yield served


def client(service: LocalService, token: str) -> Client:
    return Client(service.url, token, patience=0.0)


def refused(service: LocalService, token: str) -> str:
    with pytest.raises(ServiceFailed) as error:
        client(service, token).devices()
    assert error.value.status == 401
    return str(error.value)


def test_a_person_is_known_by_its_claims(service: LocalService, issuer: Issuer) -> None:
    ada = client(service, issuer.token())
    assert ada.run(Burst(0.001, 7), "dev") == 7
    (used,) = ada.call("GET", "/v1/usage", {"by": ["user", "account"]})
    assert (used["user"], used["account"]) == ("ada", "physics")
    with pytest.raises(ServiceFailed, match="ada is not an operator"):
        ada.call("POST", "/v1/devices/dev/drain", form={})


def test_a_group_in_the_claims_makes_an_operator(service: LocalService, issuer: Issuer) -> None:
    boss = client(service, issuer.token(preferred_username="bo", groups=["staff", "qpu-admins"]))
    boss.call("POST", "/v1/devices/dev/drain", form={})
    boss.call("POST", "/v1/devices/dev/resume")


def test_what_is_not_signed_for_this_service_by_its_issuer_now_is_refused(
    service: LocalService, issuer: Issuer
) -> None:
    now = int(time.time())
    assert "xpired" in refused(service, issuer.token(exp=now - 3600, iat=now - 7200))
    assert "udience" in refused(service, issuer.token(aud="another service"))
    assert "nobody whom this service trusts" in refused(service, issuer.token(iss="http://evil"))
    assert "not valid" in refused(service, issuer.token(iat=now + 3600))
    for claim in ("exp", "iat", "aud"):
        assert "not valid" in refused(service, issuer.token(**{claim: None}))
    for name in (None, "", 7, "(site)", "operator", "a\nb", "x" * 200):
        assert "no usable claim" in refused(service, issuer.token(preferred_username=name))
    assert "ignature" in refused(service, issuer.token(key=_rsa()))
    own = jwt.encode({"iss": issuer.url}, _rsa(), "RS256", {"kid": "mine"})
    assert "does not publish" in refused(service, own)
    head, claims, signature = issuer.token().split(".")
    other = issuer.token(preferred_username="root").split(".")[1]
    assert "ignature" in refused(service, f"{head}.{other}.{signature}")
    for garbage in ("x", "a.b.c", "..", f"{head}.{claims}.", "qtide_no.such.token"):
        refused(service, garbage)


def test_no_other_algorithm_than_that_of_the_key_is_believed(
    service: LocalService, issuer: Issuer
) -> None:
    """Neither none, nor the public key as if it were a shared secret."""
    ((name, key),) = issuer.keys.items()
    good = jwt.decode(issuer.token(), options={"verify_signature": False})
    unsigned = jwt.encode(good, "", "none", {"kid": name})
    assert "not valid" in refused(service, unsigned)
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    _, claims, _ = issuer.token().split(".")
    head = jwt.encode(good, "k" * 32, "HS256", {"kid": name}).split(".")[0]
    confused = f"{head}.{claims}.{token_signature(public, f'{head}.{claims}')}"
    assert "not valid" in refused(service, confused)


def test_keys_rotate_and_unknown_ones_do_not_make_the_service_ask_for_ever(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = OidcTokens(issuer.url, AUDIENCE, f"{issuer.url}/keys")

    async def main() -> None:
        assert await provider.by_token(issuer.token(exp=10**400))
        ((old, key),) = issuer.keys.items()
        issuer.rotate("second")
        with pytest.raises(Unproven, match="does not publish"):  # it asked a moment ago
            await provider.by_token(issuer.token())
        monkeypatch.setattr(identities, "RETRY_KEYS", 0.0)
        assert await provider.by_token(issuer.token())
        monkeypatch.undo()
        with pytest.raises(Unproven, match="does not publish"):
            await provider.by_token(issuer.token(key=key, kid=old))
        asked = issuer.asked
        for number in range(20):
            with pytest.raises(Unproven):
                await provider.by_token(issuer.token(kid=f"unknown {number}"))
        assert issuer.asked == asked

    asyncio.run(main())


def test_keys_that_are_known_wait_for_no_provider(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever names unknown keys, without a token, makes the service ask for them."""
    ((name, _),) = issuer.keys.items()
    published, asked, go_on = issuer.published(), threading.Event(), threading.Event()

    def slowly() -> bytes:
        asked.set()
        go_on.wait(60.0)
        return published

    async def main() -> None:
        keys = SigningKeys(f"{issuer.url}/keys")
        assert await keys.get(name)
        monkeypatch.setattr(issuer, "published", slowly)
        monkeypatch.setattr(identities, "RETRY_KEYS", 0.0)
        stranger = asyncio.create_task(keys.get("unknown"))
        await asyncio.to_thread(asked.wait)
        assert await keys.get(name)
        assert not stranger.done()
        go_on.set()
        assert await stranger is None

    asyncio.run(main())


@pytest.mark.parametrize("words", ["[]", "7", "<html>", '{"keys": [{"kid": ["a"]}]}', "\xff"])
def test_what_is_no_set_of_keys_is_said_again_without_asking_again(
    tmp_path: Path, words: str
) -> None:
    file = tmp_path / "keys"
    file.write_text(words, "latin-1")

    async def main() -> None:
        keys = SigningKeys(str(file))
        for _ in range(2):
            with pytest.raises(Unreachable, match="no set of public keys"):
                await keys.get("any")
            file.unlink(missing_ok=True)

    asyncio.run(main())


ASK = """
import socket, sys
with socket.socket(socket.AF_UNIX) as asking:
    asking.connect(sys.argv[1])
    head = [sys.argv[2] + " HTTP/1.1", "Host: x", "Connection: close", "", ""]
    asking.sendall("\\r\\n".join(head).encode())
    while data := asking.recv(65536):
        sys.stdout.write(data.decode())
"""


def test_a_user_of_the_host_is_known_by_the_kernel(tmp_path: Path) -> None:
    """The service's own user stays its operator; another one is a user like any other."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name) / "socket"
        place.parent.chmod(0o755)
        words = '[identities.host]\nkind = "unix"\n[devices.dev]\nkind = "burst"\n'
        served = LocalService(tmp_path, words, f'socket = "{place}"')
        served.socket = f"unix://{place}"
        with served:
            nobody = User("nobody").words("/usr/bin/python3", "-c", ASK, str(place))

            def asked(line: str) -> str:
                return subprocess.run([*nobody, line], stdout=PIPE, text=True, check=True).stdout

            assert "200 OK" in asked("GET /v1/usage?by=user")
            assert "nobody is not an operator" in asked("GET /v1/usage?everybody=true")
            assert served.operator().call("GET", "/v1/usage", {"everybody": True}) == []


def test_members_of_a_group_of_this_host_operate() -> None:
    group = grp.getgrgid(pwd.getpwnam("nobody").pw_gid).gr_name
    assert "nobody" in with_members([f"@{group}", "ada"])
    assert with_members(["@nosuchgroup"]) == {"@nosuchgroup"}


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ('kind = "oidc"', "identities.x: oidc takes issuer, audience, jwks"),
        ('kind = "oidc"\nissuer = 7\naudience = "a"\njwks = "k"', "is text, in quotes"),
        ('kind = "oidc"\nissuer = "i"\naudience = "a"\njwks = "https://[x"', "neither a URL nor"),
        ('kind = "magic"', "there is no identity 'magic'; there are: oidc, unix"),
        (
            'kind = "oidc"\nissuer = "i"\naudience = "a"\njwks = "http://sso.example/keys"',
            "could be anybody's; use https",
        ),
    ],
)
def test_a_wrong_identity_is_found_beforehand(tmp_path: Path, words: str, why: str) -> None:
    file = tmp_path / "serve.toml"
    file.write_text(f'[identities.x]\n{words}\n[devices.dev]\nkind = "burst"\n')
    done = qtide("serve", "--check", str(file))
    assert (done.returncode, why in done.stderr) == (2, True), done.stderr
