"""Slurm's programs for a box: those of this machine, or of a Debian release in a folder of its own.

The packages of a release are unpacked, not installed, so that needs no root and changes nothing
else. Programs and plug-ins are made to load the libraries beside them. So they run on this
machine's file system, without chroot: jobs see the machine as it is, and its Python.
"""

from __future__ import annotations

import fcntl
import os
import platform
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from qtide.core.errors import QtideError, UsageError
from qtide.core.files import cache_folder, write_whole

INSTALLED = "installed"
RELEASES = {"bookworm": "22.05", "trixie": "24.11", "forky": "26.05"}
"""Debian's releases with the Slurm that each had when this was written; forky may have a newer."""

DAEMON_FOLDERS = ("/usr/local/sbin", "/usr/sbin", "/sbin")
"""Where distributions install daemons; these folders are missing from a normal user's PATH."""
SLURM = ("slurmctld", "slurmd", "salloc", "srun", "sinfo")
MUNGE = ("munged",)
ACCOUNTING = ("mariadbd", "mariadb-install-db", "slurmdbd", "sacct", "sacctmgr")

OWN_AUTH = (25, 5)
"""The first version whose boxes need no munge: commands find the socket of sackd by a variable.
`auth/slurm` itself exists since 23.11."""
NEW_CGROUPS = (23, 11)
"""The first version that knows `CgroupPlugin=disabled`; older ones take no notice of cgroups."""

Tell = Callable[[str], None]


class PackagesMissing(QtideError):  # noqa: N818 - says what is wrong
    """Programs that a box needs are not installed."""


@dataclass(frozen=True)
class Release:
    """The programs of one Slurm; `folder` is None for those that are installed."""

    folder: Path | None = None

    @staticmethod
    def named(name: str, tell: Tell = lambda _: None) -> Release:
        """The release of that name, fetched if necessary."""
        if name == INSTALLED:
            return Release()
        if name not in RELEASES:
            raise UsageError(f"--release is {INSTALLED}, {', '.join(RELEASES)}; not {name!r}")
        folder = _shelf() / name
        if not (folder / VERSION).is_file():
            with _alone(folder):
                if not (folder / VERSION).is_file():  # it was not fetched while we waited
                    _fetch(name, folder, tell)
        return Release(folder)

    def program(self, name: str) -> str:
        """The path of a program; raises PackagesMissing if there is none."""
        own = [str(self.folder / "bin")] if self.folder else []
        path = shutil.which(name, path=os.pathsep.join([*own, usual_path(), *DAEMON_FOLDERS]))
        if path is None:
            raise PackagesMissing(_missing_sentence([name]))
        return path

    def require(self, *, auth: str, accounting: bool) -> None:
        """Raise PackagesMissing with the names of all missing programs, if any."""
        wanted = MUNGE * (auth == "munge") + SLURM + ACCOUNTING * accounting
        missing = [name for name in wanted if not self._has(name)]
        if missing:
            raise PackagesMissing(_missing_sentence(missing))

    def version(self) -> tuple[int, int]:
        """The version of Slurm, such as (24, 11)."""
        text = _output([self.program("slurmctld"), "-V"], 10.0)
        found = re.search(r"(\d+)\.(\d+)", text)
        if found is None:
            raise QtideError(f"slurmctld does not tell its version, but {text.strip()!r}")
        return int(found[1]), int(found[2])

    def accepted(self, auth: str | None) -> str:
        """How the daemons and commands of a box prove themselves: as wished, or by default."""
        if auth not in (None, "munge", "slurm"):
            raise UsageError(f"--auth is munge or slurm, not {auth!r}")
        able = self._has("slurmctld") and self.version() >= OWN_AUTH
        if auth == "slurm" and not able:
            raise UsageError("a box without munge needs Slurm 25.05 or newer: --release forky")
        return auth or ("slurm" if able else "munge")

    def settings(self) -> str:
        """The lines of slurm.conf that only this release needs."""
        return f"PluginDir={self.folder / PLUGINS}\n" if self.folder else ""

    def files(self) -> dict[str, str]:
        """The files beside slurm.conf that only this release needs."""
        # without a mounted cgroup file system, newer slurmds do not start
        return {"cgroup.conf": "CgroupPlugin=disabled\n"} if self.version() >= NEW_CGROUPS else {}

    def slurmd_words(self) -> list[str]:
        """What slurmd is told: else it starts the slurmstepd of the path it was built for."""
        return ["-d", self.program("slurmstepd")] if self.folder else []

    def _has(self, name: str) -> bool:
        try:
            return bool(self.program(name))
        except PackagesMissing:
            return False


def usual_path() -> str:
    """PATH without the folders that `qtide box env` has put there."""
    places = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(each for each in places if not Path(each).is_relative_to(_shelf()))


def _missing_sentence(missing: Iterable[str]) -> str:
    names = ", ".join(missing)
    return f"a box needs programs that are not installed: {names}; install them: make box-packages"


PACKAGES = (
    *("slurmctld", "slurmd", "slurm-client", "slurm-wlm-basic-plugins", "slurm-wlm-jwt-plugin"),
    *("slurmdbd", "slurm-wlm-mysql-plugin", "munge", "patchelf"),
)
NEWER = ("sackd",)
"""Packages that bookworm does not have."""
CLIENTS = (
    *("srun", "salloc", "sbatch", "scancel", "squeue", "sinfo", "scontrol", "sacct", "sacctmgr"),
    *("sstat", "sattach", "sbcast", "sreport", "sprio", "sshare", "sdiag", "munge", "unmunge"),
)
DAEMONS = ("slurmctld", "slurmd", "slurmstepd", "slurmdbd", "sackd", "munged")
PLUGINS = Path("lib/slurm-wlm")
VERSION = "version"
"""The file that is written last; a folder without it is not complete."""

MIRROR = "QTIDE_DEBIAN_MIRROR"
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
FETCH_LIMIT = 600.0
"""Seconds that each command of a fetch may take."""


def _shelf() -> Path:
    """The folder of all releases; root's is one that other users' jobs can read."""
    return (Path("/var/cache/qtide") if os.geteuid() == 0 else cache_folder()) / "slurm"


def _fetch(name: str, folder: Path, tell: Tell) -> None:
    """Download, unpack and adapt the packages of a release; the folder's name must not change."""
    apt, unpack = _tool("apt-get", "apt"), _tool("dpkg-deb", "dpkg")
    shutil.rmtree(folder, ignore_errors=True)
    work = folder / "fetch"
    (work / "lists/partial").mkdir(parents=True)
    (work / "archives/partial").mkdir(parents=True)
    (work / "status").touch()
    command = [apt, "-qq", *_apart(work, name)]
    tell(f"Slurm of Debian {name}: reading the list of its packages")
    _output([*command, "update"], FETCH_LIMIT)
    tell(f"Slurm of Debian {name}: downloading its packages, about 30 MB")
    more = () if name == "bookworm" else NEWER
    _output([*command, "install", "-y", "--download-only", *PACKAGES, *more], FETCH_LIMIT)
    packages = sorted((work / "archives").glob("*.deb"))
    for number, each in enumerate(packages, 1):
        tell(f"Slurm of Debian {name}: unpacking {number} of {len(packages)} packages")
        _output([unpack, "-x", str(each), str(work / "root")], FETCH_LIMIT)
    _arrange(work / "root", folder)
    shutil.rmtree(work)
    version = _output([str(folder / "bin/slurmctld"), "-V"], 10.0)
    write_whole(folder / VERSION, version.encode())
    tell(f"{version.strip()} of Debian {name} is in {folder}")


def _apart(work: Path, name: str) -> Iterator[str]:
    """The options that keep apt apart from this machine's own packages."""
    mirror, keyring = os.environ.get(MIRROR) or _mirror(), f"[signed-by={KEYRING}]"
    if not KEYRING.is_file():
        raise PackagesMissing(
            f"{KEYRING} is missing, which proves Debian's packages; "
            "install the package debian-archive-keyring"
        )
    (work / "sources.list").write_text(f"deb {keyring} {mirror} {name} main\n")
    for key, value in {
        "Dir::State": work,
        "Dir::State::lists": work / "lists",
        "Dir::State::status": work / "status",
        "Dir::Cache": work,
        "Dir::Cache::archives": work / "archives",
        "Dir::Etc::sourcelist": work / "sources.list",
        "Dir::Etc::sourceparts": "-",
        "Dir::Etc::preferences": "-",
        "Dir::Etc::preferencesparts": "-",
        "Acquire::Languages": "none",
        "Acquire::Retries": "1",
        "Acquire::Check-Valid-Until": "false",  # a mirror may lag behind
        "APT::Install-Recommends": "false",
        "APT::Sandbox::User": "",
        "APT::Update::Error-Mode": "any",  # by default, old lists would serve, here: none
        "APT::Update::Post-Invoke-Success": "",
    }.items():
        yield "-o"
        yield f"{key}={value}"


def _mirror() -> str:
    """The mirror from which this machine gets its own packages."""
    form = ["indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"]
    found = _output([_tool("apt-get", "apt"), *form], 30.0).split()
    mirrors = [each for each in found if each.rstrip("/").endswith("/debian")]
    if not mirrors:
        raise UsageError(f"apt has no mirror of Debian; name one in the environment: {MIRROR}=URL")
    return mirrors[0]


def _arrange(root: Path, folder: Path) -> None:
    """Keep programs and libraries, and make the programs load these libraries."""
    architecture = f"{platform.machine()}-linux-gnu"
    for place in (root / "lib", root / "usr/lib"):  # older releases have both
        if not place.is_symlink() and (place / architecture).is_dir():
            shutil.copytree(place / architecture, folder / "lib", symlinks=True, dirs_exist_ok=True)
    (folder / "bin").mkdir()
    for name in (*CLIENTS, *DAEMONS):
        places = (
            root / each / form for each in ("usr/bin", "usr/sbin") for form in (name, f"{name}-wlm")
        )
        for file in places:
            if file.is_file() and not file.is_symlink():
                shutil.move(file, folder / "bin" / name)
    loader = next((folder / "lib").glob("ld-linux*"))
    libraries = f"{folder / PLUGINS}:{folder / 'lib'}"
    patch = [str(loader), "--library-path", str(folder / "lib"), str(root / "usr/bin/patchelf")]
    # not --set-rpath alone: the path has to hold for the libraries of libraries, too
    patch += ["--force-rpath", "--set-rpath", libraries]
    _output([*patch, *_plain(folder / PLUGINS)], FETCH_LIMIT)
    _output([*patch, "--set-interpreter", str(loader), *_plain(folder / "bin")], FETCH_LIMIT)


def _plain(folder: Path) -> list[str]:
    return [str(each) for each in sorted(folder.iterdir()) if not each.is_symlink()]


def _tool(name: str, package: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise PackagesMissing(
            f"Slurm of another release is fetched with {name}, which is not here; "
            f"install the package {package}, or use the Slurm of this machine"
        )
    return path


def _output(words: Sequence[str], limit: float) -> str:
    """The output of a command; its first error, or else its last line, if it fails."""
    name = Path(words[0]).name
    env = os.environ | {"LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, check=False, timeout=limit, env=env
        )
    except subprocess.TimeoutExpired:
        raise QtideError(f"{name} did not end within {limit:g} s; is the network up?") from None
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["it gave no reason"]
        errors = [line for line in lines if line.startswith("E: ")]
        raise QtideError(f"{name} failed: {(errors or lines[-1:])[0]}")
    return done.stdout


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Wait until no other process fetches the release."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f".{folder.name}.lock").open("w") as handle:
        last = time.monotonic() + FETCH_LIMIT
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > last:
                    raise QtideError(f"another process fetches {folder}; try again") from None
                time.sleep(0.1)
        yield
