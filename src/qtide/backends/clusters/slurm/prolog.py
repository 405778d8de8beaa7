"""The job's end of admission: proves to the service by munge whose job it is, prints its token.

Slurm runs it on the nodes as the job's user (see prolog.sh). It is copied there by itself, for any
Python from 3.9 on, so it imports only the standard library, and only modules that load quickly; the
service's end imports from here what both have to agree on.
"""

from __future__ import annotations

import ctypes
import hashlib
import http.client
import json
import os
import shlex
import signal
import socket
import ssl
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

PATH = "/v1/admission"
SETTINGS = "service.conf"
LIMIT = 8.0
"""Seconds that a task may be kept waiting: Slurm itself would wait forever."""
ATTEMPTS, PAUSE = 5, 1.0
"""How often, and at which intervals in seconds, a busy service is asked."""
TTL = 60
"""Seconds that a credential is valid: enough for the way, and for clocks that differ."""

TYPE_CHECKING = False
if TYPE_CHECKING:  # loading `typing` would take longer than all the work here
    from typing import Any

    Answer = dict[str, Any]

TTL_OPTION, SOCKET_OPTION = 4, 8  # of munge_ctx_set
SUCCESS = 0
BUSY = (http.client.TOO_MANY_REQUESTS, http.client.SERVICE_UNAVAILABLE)


class ProofFailed(Exception):  # noqa: N818 - what happened
    """Libmunge reported an error; `code` is its own."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class AdmissionFailed(Exception):  # noqa: N818 - what happened
    """The service gave no token; the text says why."""


class Busy(AdmissionFailed):
    """The service is busy; it may give a token in a moment."""


class Libmunge:
    """Libmunge for one thread, bound to one munged; None means the system's own."""

    def __init__(self, socket: str | None = None) -> None:
        self.library = ctypes.CDLL("libmunge.so.2")
        self.library.munge_ctx_create.restype = ctypes.c_void_p
        self.library.munge_strerror.restype = ctypes.c_char_p
        self.library.munge_ctx_strerror.restype = ctypes.c_char_p
        self.context = ctypes.c_void_p(self.library.munge_ctx_create())
        if socket is not None:
            self.check(self.library.munge_ctx_set(self.context, SOCKET_OPTION, os.fsencode(socket)))

    def encode(self, payload: bytes, ttl: int = TTL) -> str:
        """A credential of the user of this process, valid for one decoding."""
        self.check(self.library.munge_ctx_set(self.context, TTL_OPTION, ctypes.c_int(ttl)))
        made = ctypes.c_void_p()
        length = ctypes.c_int(len(payload))
        self.check(self.library.munge_encode(ctypes.byref(made), self.context, payload, length))
        try:
            return ctypes.string_at(made.value or 0).decode()
        finally:
            free(made)

    def check(self, code: int) -> None:
        """Raise the error of the last call."""
        if code != SUCCESS:
            text = self.library.munge_ctx_strerror(self.context)
            raise ProofFailed(code, (text or self.library.munge_strerror(code)).decode())

    def close(self) -> None:
        """Free the context."""
        self.library.munge_ctx_destroy(self.context)


def free(memory: ctypes.c_void_p) -> None:
    """Free what libmunge allocated."""
    ctypes.CDLL(None).free(memory)


def is_loopback(host: str) -> bool:
    """Whether a name or an address is this host's own."""
    first, *rest = host.split(".")  # `127.evil.example` is a name like any other
    numeric = first == "127" and len(rest) == 3 and all(part.isdecimal() for part in rest)
    return numeric or host in ("localhost", "::1")


def binding(method: str, path: str, body: bytes) -> bytes:
    """What a credential contains, so that it is valid only for this request."""
    whole = json.dumps(["qtide", method, path, hashlib.sha256(body).hexdigest()])
    return hashlib.sha256(whole.encode()).hexdigest().encode()


class PrologSettings:
    """Where the service is, from the operator's file."""

    def __init__(
        self, url: str, ca: str = "", bundle: str = "", munge_socket: str = "", socket: str = ""
    ) -> None:
        self.url = url.rstrip("/")
        self.socket = socket or None  # on the service's own host, to ask by in place of the URL
        self.ca = ca or None  # certificates to verify the service with, if not the system's
        self.bundle = bundle or None  # certificates that jobs use for everything
        self.munge_socket = munge_socket or None

    @classmethod
    def read(cls, file: Path) -> PrologSettings:
        """Lines of KEY=VALUE; other keys are for prolog.sh."""
        lines = (line.partition("=") for line in file.read_text().splitlines())
        found = {key: value for key, _, value in lines}
        if not found.get("url"):
            raise AdmissionFailed(f"{file} names no url of the service")
        names = ("url", "ca", "bundle", "munge_socket", "socket")
        return cls(**{name: found[name] for name in names if name in found})


def admitted(settings: PrologSettings, job: int) -> dict[str, str]:
    """What is added to the environment of a job's tasks."""
    for _ in range(ATTEMPTS - 1):
        try:
            return _attempt(settings, job)
        except Busy:
            time.sleep(PAUSE)
    return _attempt(settings, job)


def _attempt(settings: PrologSettings, job: int) -> dict[str, str]:
    parts = urlsplit(settings.url)
    path = parts.path + PATH
    body = json.dumps({"job": job}).encode()
    with closing(Libmunge(settings.munge_socket)) as munge:
        proof = munge.encode(binding("POST", path, body))
    headers = {"Authorization": f"Munge {proof}", "Content-Type": "application/json"}
    with closing(_connection(settings)) as connection:
        connection.request("POST", path, body, headers)
        return variables(settings, job, _answer(connection.getresponse()))


def variables(settings: PrologSettings, job: int, answer: Answer) -> dict[str, str]:
    """The names that qtide's, IQM's and QRMI's clients look for."""
    url, token = settings.url, str(answer["token"])
    found = {"QTIDE_URL": url, "QTIDE_TOKEN": token, "QTIDE_JOB": str(job)}
    if settings.ca:
        found["QTIDE_CA_FILE"] = settings.ca
    if settings.bundle:
        found["REQUESTS_CA_BUNDLE"] = settings.bundle
    devices = [str(device) for device in answer.get("devices") or ()]
    if devices:
        found |= {"IQM_SERVER_URL": url, "IQM_TOKEN": token}
    found |= _qrmi(url, token, [device for device in devices if device.isidentifier()])
    if not all(text.isprintable() for pair in found.items() for text in pair):
        raise AdmissionFailed("its answer has characters that no environment can hold")
    return found


def _qrmi(url: str, token: str, devices: list[str]) -> dict[str, str]:
    """Its variables begin with the device's name, which therefore has to suit shells."""
    if not devices:
        return {}
    types = ",".join(["iqm-server"] * len(devices))
    found = {"QRMI_JOB_QPU_RESOURCES": ",".join(devices), "QRMI_JOB_QPU_TYPES": types}
    for device in devices:
        found[f"{device}_QRMI_IQM_ISA_ENDPOINT"] = url
        found[f"{device}_QRMI_IQM_ISA_TOKEN"] = token
    return found


class PrologConnection(http.client.HTTPConnection):
    """A connection to the service's Unix socket, if its server owns the folder of the socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=LIMIT)
        self.path = path

    def connect(self) -> None:
        """Connect, and check who answers: the credential is for the service only."""
        folder = os.stat(os.path.dirname(self.path))  # noqa: PTH116, PTH120 - quicker to load
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(LIMIT)
        self.sock.connect(self.path)
        data = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        owner = int.from_bytes(data[4:8], sys.byteorder)
        if owner not in (0, folder.st_uid) or folder.st_mode & 0o022:
            raise AdmissionFailed(f"{self.path} is served by the user {owner}, not by its owner")


def _connection(settings: PrologSettings) -> http.client.HTTPConnection:
    if settings.socket:
        return PrologConnection(settings.socket)
    parts = urlsplit(settings.url)
    host = parts.hostname or ""
    if parts.scheme != "https" and not is_loopback(host):
        raise AdmissionFailed(f"{settings.url} would get the token unencrypted; use https")
    if parts.scheme == "https":
        context = ssl.create_default_context(cafile=settings.ca)
        return http.client.HTTPSConnection(host, parts.port, timeout=LIMIT, context=context)
    return http.client.HTTPConnection(host, parts.port, timeout=LIMIT)


def _answer(response: http.client.HTTPResponse) -> Answer:
    text = response.read()
    try:
        answer = json.loads(text)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise AdmissionFailed(f"it answered {response.status} without a reason")
    if response.status >= http.client.BAD_REQUEST or "token" not in answer:
        why = answer.get("message") or answer.get("detail") or f"it answered {response.status}"
        raise (Busy if response.status in BUSY else AdmissionFailed)(str(why))
    return answer


@contextmanager
def _limit(seconds: float) -> Iterator[None]:
    """Limit the whole call: a server that trickles bytes would pass any socket timeout."""

    def over(*_: object) -> None:
        raise TimeoutError(f"no answer within {seconds:g} s")

    signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def main() -> int:
    """As Slurm's TaskProlog; or for a shell, with a job's number: eval "$(prolog.sh JOB)"."""
    by_hand = sys.argv[1:]
    job = by_hand[0] if by_hand else os.environ.get("SLURM_JOB_ID", "")
    file = Path(os.environ.get("QTIDE_SERVICE_CONF") or Path(__file__).with_name(SETTINGS))
    try:
        with _limit(LIMIT):
            found = admitted(PrologSettings.read(file), int(job))
    except (OSError, ValueError, AdmissionFailed, ProofFailed, http.client.HTTPException) as error:
        why = f"job {job} got no token for the QPU service: {error}"
        return _complain(" ".join(why.split()), by_hand=bool(by_hand))
    for name, value in found.items():
        print(f"export {name}={shlex.quote(value) if by_hand else value}")  # noqa: T201 - for Slurm
    return 0


def _complain(why: str, *, by_hand: bool) -> int:
    """A job must not fail because of the service; a TaskProlog can only set variables."""
    if by_hand:
        print(f"qtide: {why}", file=sys.stderr)  # noqa: T201 - for people
        return 1
    print(f"unset QTIDE_TOKEN\nexport QTIDE_REFUSED={why}")  # noqa: T201 - for Slurm
    return 0


if __name__ == "__main__":
    sys.exit(main())
