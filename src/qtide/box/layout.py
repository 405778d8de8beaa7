"""The plan of a box and the layout of its folder."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from pathlib import Path

from qtide.box.release import INSTALLED
from qtide.core.errors import QtideError, UsageError
from qtide.core.files import Damaged, read_json, write_json
from qtide.core.resources import NodeKind

LONGEST_SOCKET = 107
"""The longest path, in bytes, to which Linux can bind a socket."""


@dataclass(frozen=True)
class BoxPlan:
    """What a box consists of; `ports` are the controller's, the accounting's, one per node."""

    nodes: int
    qpus: int
    accounting: bool
    slurmd_timeout: int
    ports: tuple[int, ...] = ()
    release: str = INSTALLED
    auth: str = "munge"
    """How daemons and commands prove themselves: `munge` or, from 25.05 on, `slurm`."""
    licences: tuple[str, ...] = ()
    """Further licences, such as qpu_star:4."""
    kinds: tuple[str, ...] = ()
    """Nodes of other kinds, such as `gpu:2,cores=8,gpus=4`, each in a partition of its own."""

    @property
    def node_names(self) -> tuple[str, ...]:
        """The compute nodes, those of other kinds, then the quantum node."""
        compute = [f"c{number}" for number in range(1, self.nodes + 1)]
        return (*compute, *(name for names in self.by_kind().values() for name in names), "q1")

    def by_kind(self) -> dict[NodeKind, list[str]]:
        """The names of the nodes of each other kind."""
        return {
            kind: [f"{kind.name}{number}" for number in range(1, kind.count + 1)]
            for kind in NodeKind.parse_all(self.kinds)
        }

    def same_as(self, other: BoxPlan) -> bool:
        """Whether both describe the same box, ignoring ports, which are chosen at random."""
        return asdict(self) | {"ports": ()} == asdict(other) | {"ports": ()}


class BoxLayout:
    """The files of the box in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.expanduser().resolve()
        self.plan_file = self.folder / "box.json"
        self.conf = self.folder / "etc" / "slurm.conf"
        self.gpus = self.folder / "etc" / "gpus"
        self.log = self.folder / "log"
        self.run = self.folder / "run"
        self.key = self.folder / "munge" / "key"
        self.jwt_key = self.folder / "munge" / "jwt_hs256.key"
        self.munge_socket = self.run / "munge"
        self.slurm_key = self.folder / "etc" / "slurm.key"
        self.sack_socket = self.run / "sackd.sack"
        self.database = self.folder / "database"
        self.database_socket = self.database / "socket"

    def check(self) -> None:
        """Refuse a folder that the daemons cannot use or that holds something else."""
        if not re.fullmatch(r"[\w./@+~-]+", str(self.folder)):
            raise UsageError(
                f"{self.folder} cannot be a box's folder: Slurm's files take letters, digits "
                "and ./@+~-_ only; name another with --folder"
            )
        if max(len(bytes(each)) for each in self._sockets()) > LONGEST_SOCKET:
            raise UsageError(f"{self.folder} is too long a path for sockets; name a shorter one")
        if self.folder.exists() and not self.made and any(self.folder.iterdir()):
            raise UsageError(f"{self.folder} holds something other than a box; name another folder")

    @property
    def made(self) -> bool:
        """Whether a box was created here."""
        return self.plan_file.is_file()

    def folders(self) -> list[Path]:
        """The folders that must exist before the daemons start."""
        inside = ("etc", "log", "run", "munge", "state", "spool", "tmp", "database")
        return [self.folder / name for name in inside]

    def write_plan(self, plan: BoxPlan) -> None:
        """Store the plan; from now on the folder counts as a box."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_json(self.plan_file, asdict(plan))

    def read_plan(self) -> BoxPlan:
        """Read the plan that `write_plan` stored."""
        try:
            entries = read_json(self.plan_file)
            lists = {key: tuple(entries.get(key, ())) for key in ("ports", "licences", "kinds")}
            return BoxPlan(**entries | lists)
        except FileNotFoundError:
            raise UsageError(f"there is no box in {self.folder}; make one: qtide box up") from None
        except Damaged as error:
            raise QtideError(f"{error}; remove the box: qtide box down") from None
        except (OSError, TypeError, KeyError) as error:
            raise QtideError(
                f"{self.plan_file} cannot be read ({error}); remove the box: qtide box down"
            ) from None

    def _sockets(self) -> list[Path]:
        # slurmstepd's own sockets are named node_job.step
        own = [self.munge_socket, self.sack_socket, self.database_socket]
        return [*own, self.folder / "spool/c99/c99_9999999.9999"]
