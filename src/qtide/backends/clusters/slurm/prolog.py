"""The job's side of admission: proves the job's user to the service by munge, prints the token.

Slurm runs this file on the nodes as the job's user (see prolog.sh). It is copied there on its own
and runs on Python 3.9 or later, so it imports only modules of the standard library that load
quickly. The service imports from here what both sides must agree on.
"""

from __future__ import annotations

import base64
import ctypes
import hashlib
import hmac
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
"""Seconds by which a task may be delayed; Slurm itself would wait forever."""
ATTEMPTS, PAUSE = 5, 1.0
"""Number of requests to a busy service, and seconds between them."""
STARTING, POLL = 15.0, 0.1
"""Seconds that a service on this host may take to start, and between two looks at it."""
TTL = 60
"""Validity of a credential in seconds: enough for transport and clock differences."""

TYPE_CHECKING = False
if TYPE_CHECKING:  # loading `typing` would take longer than all the work here
    from typing import Any

    Answer = dict[str, Any]

TTL_OPTION, SOCKET_OPTION = 4, 8  # options of munge_ctx_set
SUCCESS = 0
BUSY = (http.client.TOO_MANY_REQUESTS, http.client.SERVICE_UNAVAILABLE)


class ProofFailed(Exception):  # noqa: N818 - named after the event
    """Libmunge reported an error; `code` is its error code."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class AdmissionFailed(Exception):  # noqa: N818 - named after the event
    """The service gave no token; the message says why."""


class Busy(AdmissionFailed):
    """The service is busy and may give a token later."""


class Libmunge:
    """Libmunge for one thread, bound to one munged; socket None means the system's default."""

    def __init__(self, socket: str | None = None) -> None:
        self.library = ctypes.CDLL("libmunge.so.2")
        self.library.munge_ctx_create.restype = ctypes.c_void_p
        self.library.munge_strerror.restype = ctypes.c_char_p
        self.library.munge_ctx_strerror.restype = ctypes.c_char_p
        self.context = ctypes.c_void_p(self.library.munge_ctx_create())
        if socket is not None:
            self.check(self.library.munge_ctx_set(self.context, SOCKET_OPTION, os.fsencode(socket)))

    def encode(self, payload: bytes, ttl: int = TTL) -> str:
        """Create a credential of this process's user, valid for one decoding."""
        self.check(self.library.munge_ctx_set(self.context, TTL_OPTION, ctypes.c_int(ttl)))
        made = ctypes.c_void_p()
        length = ctypes.c_int(len(payload))
        self.check(self.library.munge_encode(ctypes.byref(made), self.context, payload, length))
        try:
            return ctypes.string_at(made.value or 0).decode()
        finally:
            free(made)

    def check(self, code: int) -> None:
        """Raise ProofFailed if the last call returned an error code."""
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
    """Whether a name or an address is a loopback one."""
    first, *rest = host.split(".")  # `127.evil.example` is an ordinary name
    numeric = first == "127" and len(rest) == 3 and all(part.isdecimal() for part in rest)
    return numeric or host in ("localhost", "::1")


def binding(method: str, path: str, body: bytes, audience: str) -> bytes:
    """The content of a credential that makes it valid only for this request to this service.

    An empty audience is that of prologs which named none.
    """
    words = ["qtide", method, path, hashlib.sha256(body).hexdigest()]
    whole = json.dumps([*words, audience] if audience else words)
    return hashlib.sha256(whole.encode()).hexdigest().encode()


FRESH_PROOF = 60.0
"""Seconds for which a proof of possession is valid."""


def token_signature(key: bytes, signed: str) -> str:
    """The signature of a Slurm token (HS256), by the key of slurmctld and the service."""
    made = hmac.new(key, signed.encode(), hashlib.sha256).digest()
    return base64.urlsafe_b64encode(made).decode().rstrip("=")


def possession(signature: str, moment: str, nonce: str, bound: bytes) -> str:
    """A code that only somebody who has a token's signature can make, for one request, now."""
    words = b" ".join([moment.encode(), nonce.encode(), bound])
    return hmac.new(signature.encode(), words, hashlib.sha256).hexdigest()


def proof_of_token(token: str, bound: bytes) -> str:
    """Prove that one has a Slurm token, without sending it."""
    head, claims, signature = token.split(".")
    moment, nonce = str(int(time.time())), os.urandom(16).hex()
    return ".".join([head, claims, moment, nonce, possession(signature, moment, nonce, bound)])


def slurm_token(scontrol: str = "scontrol", sack: str = "") -> str:
    """Ask slurmctld for a token of this process's user; `sack` is sackd's socket."""
    from subprocess import run  # only on clusters without munge

    words = (scontrol, "token", f"lifespan={TTL}")
    env = {**os.environ, "SLURM_SACK_SOCKET": sack} if sack else None
    done = run(words, capture_output=True, check=False, timeout=LIMIT, text=True, env=env)
    name, _, token = done.stdout.strip().partition("=")
    if name != "SLURM_JWT" or token.count(".") != 2:
        raise AdmissionFailed(f"scontrol gave no token: {done.stderr.strip() or 'no reason'}")
    return token


def served_by(user: int) -> str:
    """The audience of a service without a certificate: the user whose process answers."""
    return f"user {user}"


def certified(certificate: bytes) -> str:
    """The audience of a service with a certificate, given in DER."""
    return f"certificate {hashlib.sha256(certificate).hexdigest()}"


class PrologSettings:
    """The service's address and certificates, from the operator's file."""

    def __init__(
        self,
        url: str,
        ca: str = "",
        bundle: str = "",
        munge_socket: str = "",
        socket: str = "",
        auth: str = "",
        scontrol: str = "",
        sack: str = "",
    ) -> None:
        self.urls = [each.strip().rstrip("/") for each in url.split(",")]
        self.url = ",".join(self.urls)
        self.socket = socket or None  # used instead of the URL on the service's own host
        self.ca = ca or None  # certificates that verify the service; None for the system's
        self.bundle = bundle or None  # certificates that jobs use for all connections
        self.munge_socket = munge_socket or None
        self.auth = auth or "munge"  # what proves the job's user: munge or jwt
        self.scontrol = scontrol or "scontrol"  # which gives the tokens for jwt
        self.sack = sack  # the socket of sackd, if not the system's

    @classmethod
    def read(cls, file: Path) -> PrologSettings:
        """Read lines of KEY=VALUE; other keys are for prolog.sh."""
        lines = (line.partition("=") for line in file.read_text().splitlines())
        found = {key: value for key, _, value in lines}
        if not found.get("url"):
            raise AdmissionFailed(f"{file} names no url of the service")
        names = ("url", "ca", "bundle", "munge_socket", "socket", "auth", "scontrol", "sack")
        return cls(**{name: found[name] for name in names if name in found})


def admitted(settings: PrologSettings, job: int) -> dict[str, str]:
    """Request a token; return the variables to add to the environment of the job's tasks."""
    left = ATTEMPTS - 1
    while True:
        try:
            return _attempt(settings, job)
        except Busy:
            if not left:
                raise
            left -= 1
            time.sleep(PAUSE)
        except (ConnectionRefusedError, FileNotFoundError):
            if not _is_coming_up():
                raise
            time.sleep(POLL)


def _attempt(settings: PrologSettings, job: int) -> dict[str, str]:
    """Ask each of the services; of several, one leads and the others stand by."""
    for url in settings.urls[:-1]:
        try:
            return _asked(settings, url, job)
        except (Busy, OSError):
            continue
    return _asked(settings, settings.urls[-1], job)


def _asked(settings: PrologSettings, url: str, job: int) -> dict[str, str]:
    path = urlsplit(url).path + PATH
    body = json.dumps({"job": job}).encode()
    with closing(_connection(settings, url)) as connection:
        audience = _connected(connection)
        proof = _proof(settings, binding("POST", path, body, audience))
        headers = {"Authorization": proof, "Content-Type": "application/json"}
        connection.request("POST", path, body, headers)
        return variables(settings, url, job, _answer(connection.getresponse()))


def _proof(settings: PrologSettings, bound: bytes) -> str:
    """The value of the header that proves this process's user, for one request."""
    if settings.auth == "jwt":
        return f"Slurm {proof_of_token(slurm_token(settings.scontrol, settings.sack), bound)}"
    with closing(Libmunge(settings.munge_socket)) as munge:
        return f"Munge {munge.encode(bound)}"


def variables(settings: PrologSettings, url: str, job: int, answer: Answer) -> dict[str, str]:
    """The environment variables that the clients of qtide, IQM and QRMI read.

    Only qtide's own clients know what to do with the URLs of several services.
    """
    token = str(answer["token"])
    found = {"QTIDE_URL": settings.url, "QTIDE_TOKEN": token, "QTIDE_JOB": str(job)}
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
    """QRMI's variables, which begin with the device's name; it must be a valid identifier."""
    if not devices:
        return {}
    types = ",".join(["iqm-server"] * len(devices))
    found = {"QRMI_JOB_QPU_RESOURCES": ",".join(devices), "QRMI_JOB_QPU_TYPES": types}
    for device in devices:
        found[f"{device}_QRMI_IQM_ISA_ENDPOINT"] = url
        found[f"{device}_QRMI_IQM_ISA_TOKEN"] = token
    return found


class PrologConnection(http.client.HTTPConnection):
    """A connection to the service's Unix socket, whose server must own the socket's folder."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=LIMIT)
        self.path = path
        self.owner = -1

    def connect(self) -> None:
        """Connect and check who answers, as only the service may get the credential."""
        folder = os.stat(os.path.dirname(self.path))  # noqa: PTH116, PTH120 - quicker to load
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(LIMIT)
        self.sock.connect(self.path)
        data = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        self.owner = int.from_bytes(data[4:8], sys.byteorder)
        if self.owner not in (0, folder.st_uid) or folder.st_mode & 0o022:
            raise AdmissionFailed(
                f"{self.path} is served by the user {self.owner}, not by its owner"
            )


def _connection(settings: PrologSettings, url: str) -> http.client.HTTPConnection:
    if settings.socket:
        return PrologConnection(settings.socket)
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme != "https" and not is_loopback(host):
        raise AdmissionFailed(f"{url} would get the token unencrypted; use https")
    if parts.scheme == "https":
        context = ssl.create_default_context(cafile=settings.ca)
        return http.client.HTTPSConnection(host, parts.port, timeout=LIMIT, context=context)
    return http.client.HTTPConnection(host, parts.port, timeout=LIMIT)


def _connected(connection: http.client.HTTPConnection) -> str:
    """Connect; return who answers, so that nobody else can use a credential made for them."""
    before = _listeners(connection.port)
    connection.connect()
    peer = connection.sock
    if isinstance(peer, ssl.SSLSocket):
        return certified(peer.getpeercert(binary_form=True) or b"")
    if isinstance(connection, PrologConnection):
        return served_by(connection.owner)
    host = socket.inet_pton(peer.family, peer.getpeername()[0])
    after = _listeners(connection.port)
    for place in (host, bytes(len(host)), bytes(16)):  # this address, or any
        if place in after and after[place] == before.get(place):
            return served_by(after[place][0])
    raise Busy("the kernel does not say who listens on the service's port")  # it has just begun to


def _listeners(port: int | None) -> dict[bytes, tuple[int, str]]:
    """The user and the inode of each socket of this host that listens on a port, by address."""
    found: dict[bytes, tuple[int, str]] = {}
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for row in Path(table).read_text().splitlines()[1:] if os.path.exists(table) else ():  # noqa: PTH110 - quicker to load
            fields = row.split()
            host, _, number = fields[1].partition(":")
            if fields[3] == "0A" and int(number, 16) == port:  # the state LISTEN
                words = [bytes.fromhex(host[at : at + 8])[::-1] for at in range(0, len(host), 8)]
                found[b"".join(words)] = (int(fields[7]), fields[9])
    return found


def _is_coming_up() -> bool:
    """Whether a service on this host has been started within `STARTING` seconds and loads."""
    now = float(Path("/proc/uptime").read_text().split()[0])
    for each in os.listdir("/proc"):  # noqa: PTH208 - quicker to load
        try:
            words = Path(f"/proc/{each}/cmdline").read_bytes().split(b"\0")
            names = [word.rpartition(b"/")[2] for word in words]
            if b"qtide" not in names or b"serve" not in names[names.index(b"qtide") :]:
                continue
            name, _, rest = Path(f"/proc/{each}/stat").read_text().rpartition(")")
            began = int(rest.split()[19]) / os.sysconf("SC_CLK_TCK")
        except (OSError, ValueError):
            continue  # it is no process, or has just ended
        if now - began < STARTING and "(qtide-serving" not in name:
            return True
    return False


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
    """Limit the whole call: a server that trickles bytes would evade any socket timeout."""

    def over(*_: object) -> None:
        raise TimeoutError(f"no answer within {seconds:g} s")

    signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def main() -> int:
    """Run as Slurm's TaskProlog or, with a job number, for a shell: eval "$(prolog.sh JOB)"."""
    by_hand = sys.argv[1:]
    job = by_hand[0] if by_hand else os.environ.get("SLURM_JOB_ID", "")
    file = Path(os.environ.get("QTIDE_SERVICE_CONF") or Path(__file__).with_name(SETTINGS))
    if by_hand and not job.isdecimal():
        return _complain(f"{job!r} is no job's number, such as 4711", by_hand=True)
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
    """Report a failure without failing the job; a TaskProlog can only set variables."""
    if by_hand:
        print(f"qtide: {why}", file=sys.stderr)  # noqa: T201 - for people
        return 1
    print(f"unset QTIDE_TOKEN\nexport QTIDE_REFUSED={why}")  # noqa: T201 - for Slurm
    return 0


if __name__ == "__main__":
    sys.exit(main())
