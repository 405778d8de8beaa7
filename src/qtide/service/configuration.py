"""The service's configuration: one TOML file, checked as a whole before anything starts."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal, get_args
from urllib.parse import parse_qs, urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_core import ErrorDetails

from qtide.backends.devices.profile import profile
from qtide.core.errors import UsageError
from qtide.core.files import state_folder
from qtide.core.plugins import Plugins
from qtide.service.apis import APIS
from qtide.service.limits import Limits
from qtide.service.policies.policy import POLICIES

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$")]

DAY = 86_400.0


class Section(BaseModel):
    """A part of the file that allows no unknown entries."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class CalibrationPlan(Section):
    """Planned pauses of a device."""

    every: Seconds
    lasts: Seconds
    first: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """Seconds until the first one begins; by default, it ends the first period."""

    @model_validator(mode="after")
    def _leaves_time(self) -> CalibrationPlan:
        if self.lasts >= self.every:
            raise ValueError("a calibration has to last less than the time from one to the next")
        if self.first is not None and self.first + self.lasts > self.every:
            raise ValueError("the first calibration has to end within the first period")
        return self


class MaintenanceWindow(Section):
    """A planned time at which a device starts no task; not in the file, but entered once."""

    number: int
    device: str
    start: float
    end: float
    reason: str


class SessionPlan(Section):
    """What a session may take of a device."""

    longest: Seconds = 300.0
    """Maximum seconds that a session may hold the device."""
    idle: Seconds = 10.0
    """Maximum seconds that it may hold the device without a task on it; users may set less."""


class DeviceSetup(BaseModel):
    """One device; further entries are the device's own options."""

    model_config = ConfigDict(extra="allow", frozen=True)

    kind: str
    profile: str | None = None
    """Timing profile of an emulated device; a real one has its own timing."""
    policy: str = "fair"
    slots: Annotated[int, Field(ge=1)] = 16
    """How many jobs may hold one of its virtual QPUs at once."""
    retries: Annotated[int, Field(ge=0)] = 2
    """How often to rerun a task if the device or the service died during it."""
    limit: Seconds = 600.0
    """Maximum seconds a task may occupy the device; tasks expected to take longer are refused."""
    chunk: Seconds | None = None
    """Seconds after which a long task gives way to one that goes before it; None for never."""
    sessions: SessionPlan | None = None
    """Whether users may hold the device for a while, and for how long."""
    at_once: Annotated[int, Field(ge=1, le=16)] = 1
    """Most tasks to run at the same time, on qubits of their own, if their users allow it."""
    promised: Annotated[float, Field(ge=0, lt=1)] = 0.5
    """The share of future time that may be promised to tasks with a maximum wait."""
    python: str | None = None
    """Path of the Python interpreter that has the device's packages."""
    calibration: CalibrationPlan | None = None
    apis: list[str] | None = None
    """The APIs that offer it; None means all. IQM's shows only devices that accept IQM circuits."""
    users: list[str] | None = None
    """Users who may use it, besides the accounts; if neither is set, everybody may."""
    accounts: list[str] | None = None

    @property
    def options(self) -> dict[str, Any]:
        """The device's own options."""
        return dict(self.model_extra or {})

    @field_validator("profile")
    @classmethod
    def _known_profile(cls, name: str | None) -> str | None:
        if name is not None:
            try:
                profile(name)
            except UsageError as error:  # pydantic adds the place in the file
                raise ValueError(str(error)) from None
        return name

    @field_validator("policy")
    @classmethod
    def _known_policy(cls, name: str) -> str:
        _check_name(POLICIES, name)
        return name

    @field_validator("apis")
    @classmethod
    def _known_apis(cls, names: list[str] | None) -> list[str] | None:
        for name in names or ():
            _check_name(APIS, name)
        return names


class Quota(Section):
    """Upper limits; None means no limit."""

    tasks: Annotated[int, Field(ge=1)] | None = None
    """Tasks waiting or running at once."""
    qpu_seconds: Seconds | None = None
    """Seconds of device time per day (UTC)."""


class Quotas(Section):
    """Limits per user and per account; `user` and `account` are the defaults."""

    user: Quota = Quota(tasks=10_000)
    account: Quota = Quota()
    users: dict[str, Quota] = {}
    accounts: dict[str, Quota] = {}


class Fair(Section):
    """Settings of the fair-share policy."""

    half_life: Seconds = DAY
    head_start: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 10.0
    """Maximum seconds by which owners with little recent usage go before the others."""
    shares: dict[str, Seconds] = {}


class Priorities(Section):
    """The highest priorities that users may ask for; operators may ask for any."""

    most: Annotated[int, Field(ge=0, le=100)] = 10
    users: dict[str, Annotated[int, Field(ge=-100, le=100)]] = {}


class AvailabilityPlan(Section):
    """How Slurm is told which devices take work: by licences, and by a file for job_submit.lua."""

    licence: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]*\{device\}[A-Za-z0-9_-]*$")] = (
        "qpu_{device}"
    )
    """The name of each device's own licence."""
    every: Seconds = 10.0
    """Seconds between two looks."""
    fresh: Seconds = 120.0
    """Seconds after which Slurm forgets what it was told, if the service is lost."""
    settle: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 30.0
    """Seconds for which a fault, or its end, has to last before Slurm is told."""
    most_wait: Seconds | None = None
    """Expected wait in seconds beyond which no more jobs are let in, until it has halved."""
    file: Path | None = None
    """Where to write what job_submit.lua reads."""
    when_down: Literal["refuse", "hold", "wait"] = "refuse"
    """What happens to a new job whose device is down for longer than the job lasts."""
    dry_run: bool = False
    """Only write to the log what Slurm would be told."""

    @model_validator(mode="after")
    def _renewed_in_time(self) -> AvailabilityPlan:
        if self.fresh < 2 * self.every:
            raise ValueError("fresh has to be at least twice as long as every")
        return self


class SlurmSection(Section):
    """Admission by Slurm."""

    conf: Path | None = None
    munge_socket: Path | None = None
    licence: str = "qpu"
    gres: str = "qpu"
    trust_accounts: bool = False
    """Charge the account that a job names, even if Slurm does not check who may use it."""
    availability: AvailabilityPlan | None = None
    certificate: Path | None = None
    """The certificate that jobs see, if a proxy in front of the service has one of its own."""
    job_record: Literal["AdminComment", "SystemComment", "Comment", "none"] = "AdminComment"
    """The field of a job's record in Slurm's accounting that gets its tasks and QPU seconds."""
    jwt_key: Path | None = None
    """Slurm's key for tokens (AuthAltParameters=jwt_key=), to admit jobs without munge."""


class IdentitySetup(BaseModel):
    """A way to know people: its kind, and the options of that kind."""

    model_config = ConfigDict(extra="allow", frozen=True)
    kind: str
    accounts: Literal["", "slurm"] = ""
    """`slurm`: whoever names no account has the default one of Slurm's associations."""

    @property
    def options(self) -> dict[str, Any]:
        """The options of its kind."""
        return dict(self.model_extra or {})


def database_url(value: str) -> str:
    """Check the URL of a database; raise a ValueError that says what is wrong with it."""
    parts = urlsplit(value)
    if parts.scheme not in ("postgresql", "postgres"):
        raise ValueError("give the URL of a database, as in postgresql://host/qtide")
    if parts.password is not None or "password" in parse_qs(parts.query):
        raise ValueError("keep the password out of it, in PostgreSQL's password file ~/.pgpass")
    if find_spec("psycopg") is None:
        raise ValueError("PostgreSQL needs its driver: pip install 'qtide[serve,postgresql]'")
    return value


class Configuration(Section):
    """All settings of the service."""

    listen: str = "127.0.0.1:8037"
    state: Path = Field(default_factory=lambda: state_folder() / "service")
    store: str | None = None
    """URL of a PostgreSQL database that a standby on another host shares; by default, a file in the
    state folder. PostgreSQL's own password file holds the password, never this one."""
    public_url: str | None = None
    """The URL at which clients reach this service, for a standby to name while it does not lead."""
    anonymous: bool = False
    """Require no tokens; only for a demonstration on the loopback."""
    operators: list[str] = []
    """Users who may see all tasks, drain devices and read all usage; `@GROUP` names a group."""
    identities: dict[str, IdentitySetup] = {}
    """Ways to know people besides the service's own tokens."""
    certificate: Path | None = None
    key: Path | None = None
    publish_levels: bool = False
    """Show the service levels of all devices to everybody, without sign-in, at `/levels`."""
    retention_days: Annotated[float, Field(gt=0)] = 30.0
    """Days to keep payloads and answers after a task's end; its usage record stays."""
    most_bytes: Annotated[int, Field(ge=1024)] = 16 * 2**20
    """Maximum bytes of a request."""
    devices: Annotated[dict[Name, DeviceSetup], Field(min_length=1)]
    quotas: Quotas = Quotas()
    fair: Fair = Fair()
    priorities: Priorities = Priorities()
    slurm: SlurmSection | None = None
    limits: Limits = Limits()
    socket: Path | None = None
    """The Unix socket for clients on this host; by default `socket` in the state folder."""

    @property
    def host(self) -> str:
        """The address to listen on."""
        return self.listen.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        """The port to listen on; 0 means any free one."""
        return int(self.listen.rpartition(":")[2])

    @property
    def folder(self) -> Path:
        """The state folder."""
        return self.state.expanduser()

    @property
    def unix_socket(self) -> Path:
        """The Unix socket where clients on this host connect."""
        return self.folder / "socket" if self.socket is None else self.socket.expanduser()

    def listening(self, address: str) -> Configuration:
        """Return a copy that listens on another address, checked like the file."""
        try:
            return Configuration(**dict(self) | {"listen": address})
        except ValidationError as error:
            raise UsageError(
                f"--listen {address} is wrong: {sentence(error.errors()[0])}"
            ) from None

    @field_validator("store")
    @classmethod
    def _a_database(cls, value: str | None) -> str | None:
        return None if value is None else database_url(value)

    @field_validator("listen")
    @classmethod
    def _an_address(cls, value: str) -> str:
        host, _, port = value.rpartition(":")
        if not host or not port.isdecimal() or int(port) > 65_535:
            raise ValueError("give address and port, as in 127.0.0.1:8037")
        return value

    @model_validator(mode="after")
    def _safe(self) -> Configuration:
        """Require TLS and tokens on any address other than the loopback."""
        if _loopback(self.host):
            return self
        if self.anonymous:
            raise ValueError("anonymous is for the loopback only; listen on 127.0.0.1")
        if self.certificate is None or self.key is None:
            raise ValueError(
                f"listening on {self.host} needs TLS: name a certificate and a key, "
                "or listen on 127.0.0.1"
            )
        return self


def demonstration() -> Configuration:
    """Configuration of `qtide serve --demo`: all emulated devices, on the loopback, no tokens."""
    return Configuration(
        state=state_folder() / "demo",
        anonymous=True,
        devices={
            "star": DeviceSetup(
                kind="star", profile="superconducting", chunk=0.5, sessions=SessionPlan()
            ),
            "noisy-star": DeviceSetup.model_validate(
                {"kind": "star", "profile": "superconducting", "noisy": True}
            ),
            "gate": DeviceSetup.model_validate({"kind": "gate", "qubits": 20}),
            "annealer": DeviceSetup(kind="annealer", profile="annealer"),
            "atoms": DeviceSetup(kind="atoms"),
        },
    )


def _check_name(plugins: Plugins[Any], name: str) -> None:
    """Refuse a name that is not registered, without importing any plug-in."""
    if name not in plugins.names():
        known = ", ".join(plugins.names())
        raise ValueError(f"there is no {plugins.noun} {name!r}; there are: {known}")


def sentence(error: ErrorDetails) -> str:
    """Describe a pydantic error in one sentence: where it is, and what is wrong."""
    *above, last = error["loc"] or ("",)
    where = ".".join(str(each) for each in error["loc"])
    said = error["msg"].removeprefix("Value error, ")
    if error["type"] == "extra_forbidden":
        known = _entries([str(each) for each in above])
        near = get_close_matches(str(last), known, 1)
        said = "there is no such entry" + (f"; did you mean {near[0]}?" if near else "")
    if error["type"] == "missing":
        said = "it is missing"
    return f"{where}: {said}" if where else said


def _entries(place: list[str]) -> list[str]:
    """The names of the entries in a part of the file."""
    part: Any = Configuration
    for name in place:
        field = getattr(part, "model_fields", {}).get(name)
        part = field.annotation if field else Quota if part is Quotas else None
        part = next((each for each in (part, *get_args(part)) if _is_part(each)), part)
    return list(getattr(part, "model_fields", {}))


def _is_part(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


FIXED = ("listen", "state", "store", "public_url", "socket", "anonymous", "slurm", "identities")
"""Entries that a running service cannot change."""
FIXED_LIMITS = ("limits.validators", "limits.admissions_per_user")


class Revision:
    """The change from one configuration to another in a running service."""

    def __init__(self, old: Configuration, new: Configuration) -> None:
        fixed = [*FIXED, *_tls(old, new)]
        self.configuration = new.model_copy(update={name: getattr(old, name) for name in fixed})
        """The new configuration, with the old value of each entry that needs a restart."""
        differences = list(_differences(old.model_dump(), new.model_dump()))
        later = {*fixed, *FIXED_LIMITS}
        self.after_restart = [each for each in differences if _is_in(each, later)]
        self.changed = [each for each in differences if not _is_in(each, later)]


def _tls(old: Configuration, new: Configuration) -> tuple[str, ...]:
    """The TLS entries, if TLS was turned on or off: only a restart can change that."""
    same = (old.certificate is None) == (new.certificate is None)
    return () if same else ("certificate", "key")


def _is_in(place: str, parts: set[str]) -> bool:
    return place in parts or place.partition(".")[0] in parts


def _differences(old: Any, new: Any, place: str = "") -> Iterator[str]:
    """Yield the names of entries that differ, not their values, which may be secret."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        if old != new:
            yield place
        return
    for name in dict.fromkeys([*old, *new]):
        yield from _differences(old.get(name), new.get(name), f"{place}.{name}".strip("."))
