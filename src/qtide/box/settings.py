"""The settings of a box: what its daemons and commands read."""

from __future__ import annotations

import ipaddress
import os
import pwd
import socket

from qtide.box.layout import BoxLayout, BoxPlan
from qtide.box.release import Release
from qtide.core.sockets import LOOPBACK


def slurm_conf(layout: BoxLayout, plan: BoxPlan) -> str:
    """The configuration for the controller, the nodes and all clients."""
    host, user, folder = socket.gethostname(), user_name(), layout.folder
    return f"""\
ClusterName=qtide
SlurmctldHost={host}({LOOPBACK})
SlurmctldPort={plan.ports[0]}
SlurmUser={user}
SlurmdUser={user}
{_bound_to_loopback(host)}{_auth(layout, plan)}{Release.named(plan.release).settings()}\
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
TmpFS={folder}/tmp/%n
SlurmctldPidFile={layout.run}/slurmctld.pid
SlurmdPidFile={layout.run}/slurmd-%n.pid
SlurmctldLogFile={layout.log}/slurmctld.log
SlurmdLogFile={layout.log}/slurmd-%n.log
# several slurmd on one machine, without cgroups
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
{_cred(plan)}TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
# schedule at once: there are no other users
SchedulerParameters=bf_interval=1,sched_interval=1,batch_sched_delay=0,sched_min_interval=0
ReturnToService=2
SlurmctldTimeout=30
SlurmdTimeout={plan.slurmd_timeout}
KillWait=2
# a step that ends while the controller is away is not unkillable: no node is drained for it
UnkillableStepTimeout=300
MinJobAge=600
{_accounting(layout, plan)}
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=qpu{",gpu" if any(kind.gpus for kind in plan.by_kind()) else ""}
Licenses={",".join([f"qpu:{plan.qpus}", *plan.licences])}
{_nodes(plan, host)}
PartitionName=compute Nodes={",".join(plan.node_names[: plan.nodes])} Default=YES OverSubscribe=EXCLUSIVE State=UP
PartitionName=quantum Nodes=q1 State=UP
{_other_partitions(plan)}"""  # noqa: E501 - a partition is one line


def _other_partitions(plan: BoxPlan) -> str:
    """One partition for each other kind of nodes; jobs may share these nodes."""
    return "".join(
        f"PartitionName={kind.name} Nodes={','.join(names)} State=UP\n"
        for kind, names in plan.by_kind().items()
    )


GPU_FLAGS = "Flags=nvidia_gpu_env,amd_gpu_env"
"""Slurm sets CUDA_VISIBLE_DEVICES and ROCR_VISIBLE_DEVICES, as for real GPUs."""


def gres_conf(layout: BoxLayout, plan: BoxPlan) -> str:
    """The virtual QPUs of the quantum node, and pretended GPUs: Slurm wants a file for each."""
    gpus = [
        f"NodeName={','.join(names)} Name=gpu File={layout.gpus}/[0-{kind.gpus - 1}] {GPU_FLAGS}\n"
        for kind, names in plan.by_kind().items()
        if kind.gpus
    ]
    return f"NodeName=q1 Name=qpu Count={plan.qpus}\n{''.join(gpus)}"


def slurmdbd_conf(layout: BoxLayout, plan: BoxPlan) -> str:
    """The configuration for the accounting daemon; its database listens only on a socket."""
    return f"""\
{_auth(layout, plan)}{Release.named(plan.release).settings()}\
DbdHost=localhost
DbdAddr={LOOPBACK}
DbdPort={plan.ports[1]}
SlurmUser={user_name()}
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=root
StorageLoc=slurm
{_bound_to_loopback(socket.gethostname())}LogFile={layout.log}/slurmdbd.log
PidFile={layout.run}/slurmdbd.pid
"""


def _auth(layout: BoxLayout, plan: BoxPlan) -> str:
    """How daemons and commands prove themselves; `slurm` reads slurm.key beside slurm.conf.

    Only sackd answers those who ask for a credential: there is one place for the sockets of the
    other daemons, whatever the number of boxes.
    """
    if plan.auth == "slurm":
        tokens = f"AuthAltTypes=auth/jwt\nAuthAltParameters=jwt_key={layout.jwt_key}\n"
        return f"AuthType=auth/slurm\nAuthInfo=disable_sack\n{tokens}"
    return f"AuthType=auth/munge\nAuthInfo=socket={layout.munge_socket}\n"


def _cred(plan: BoxPlan) -> str:
    return "CredType=cred/slurm\n" if plan.auth == "slurm" else ""


def clients_conf(layout: BoxLayout, plan: BoxPlan) -> str:
    """Where the commands are that fit this Slurm, for everybody who knows only its slurm.conf."""
    release = Release.named(plan.release)
    lines = [f"bin={release.folder / 'bin'}\n"] if release.folder else []
    lines += [f"SLURM_SACK_SOCKET={layout.sack_socket}\n"] if plan.auth == "slurm" else []
    return "".join(lines)


def user_name() -> str:
    """The name of the current user, whatever the environment says."""
    return pwd.getpwuid(os.getuid()).pw_name


def _bound_to_loopback(host: str) -> str:
    """The setting that binds Slurm to loopback; empty if the host's name is not loopback.

    Slurm can bind only to the address of the host's own name, or to all addresses.
    """
    try:
        address = ipaddress.ip_address(socket.gethostbyname(host))
    except OSError:
        return ""
    if str(address) != LOOPBACK:
        return ""
    return "CommunicationParameters=NoCtldInAddrAny,NoInAddrAny\n"


def _accounting(layout: BoxLayout, plan: BoxPlan) -> str:
    if not plan.accounting:
        return "AccountingStorageType=accounting_storage/none"
    pass_line = f"AccountingStoragePass={layout.munge_socket}\n" if plan.auth == "munge" else ""
    counted = [f"license/{each.partition(':')[0]}" for each in ("qpu", *plan.licences)]
    counted += ["gres/gpu"] if any(kind.gpus for kind in plan.by_kind()) else []
    return f"""\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=localhost
AccountingStoragePort={plan.ports[1]}
AccountingStorageTRES={",".join(counted)}
{pass_line}AccountingStoreFlags=job_comment"""


def _nodes(plan: BoxPlan, host: str) -> str:
    common = f"NodeHostname={host} NodeAddr={LOOPBACK} State=UNKNOWN"
    cores = {name: os.cpu_count() or 1 for name in plan.node_names} | {"q1": max(4, plan.qpus)}
    extra = {"q1": f" Gres=qpu:{plan.qpus}"}
    memory = dict.fromkeys(plan.node_names, 1024)
    for kind, names in plan.by_kind().items():
        cores |= dict.fromkeys(names, kind.cores)
        memory |= dict.fromkeys(names, max(1, (kind.memory or 2**30) // 2**20))
        extra |= dict.fromkeys(names, f" Gres=gpu:{kind.gpus}" if kind.gpus else "")
    return "\n".join(
        f"NodeName={name} Port={port} CPUs={cores[name]} RealMemory={memory[name]} {common}"
        f"{extra.get(name, '')}"
        for name, port in zip(plan.node_names, plan.ports[2:], strict=True)
    )
