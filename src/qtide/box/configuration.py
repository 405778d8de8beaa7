"""The configuration files of a box, as text."""

from __future__ import annotations

import ipaddress
import os
import pwd
import socket

from qtide.box.layout import Layout, Plan
from qtide.system.ports import LOOPBACK


def slurm_conf(layout: Layout, plan: Plan) -> str:
    """The configuration of the controller, the nodes and all clients."""
    host, user, folder = socket.gethostname(), _user(), layout.folder
    return f"""\
ClusterName=qtide
SlurmctldHost={host}({LOOPBACK})
SlurmctldPort={plan.ports[0]}
SlurmUser={user}
SlurmdUser={user}
{_bound_to_loopback(host)}AuthType=auth/munge
AuthInfo=socket={layout.munge_socket}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
TmpFS={folder}/tmp
SlurmctldPidFile={layout.run}/slurmctld.pid
SlurmdPidFile={layout.run}/slurmd-%n.pid
SlurmctldLogFile={layout.log}/slurmctld.log
SlurmdLogFile={layout.log}/slurmd-%n.log
# several slurmd on one machine, without cgroups
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
# tasks that hold a virtual QPU get a token for the service, once service.conf names one
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
GresTypes=qpu
Licenses=qpu:{plan.qpus}
{_nodes(plan, host)}
PartitionName=compute Nodes={",".join(plan.node_names[:-1])} Default=YES OverSubscribe=EXCLUSIVE State=UP
PartitionName=quantum Nodes=q1 State=UP
"""  # noqa: E501 - a partition is one line


def gres_conf(plan: Plan) -> str:
    """The virtual QPUs of the quantum node."""
    return f"NodeName=q1 Name=qpu Count={plan.qpus}\n"


def slurmdbd_conf(layout: Layout, plan: Plan) -> str:
    """The configuration of the accounting daemon; its database is reached only by a socket."""
    return f"""\
AuthType=auth/munge
AuthInfo=socket={layout.munge_socket}
DbdHost=localhost
DbdAddr={LOOPBACK}
DbdPort={plan.ports[1]}
SlurmUser={_user()}
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=root
StorageLoc=slurm
{_bound_to_loopback(socket.gethostname())}LogFile={layout.log}/slurmdbd.log
PidFile={layout.run}/slurmdbd.pid
"""


def _user() -> str:
    """The name of our user, whatever the environment says."""
    return pwd.getpwuid(os.getuid()).pw_name


def _bound_to_loopback(host: str) -> str:
    """Slurm can bind only to the address of the host's own name, or to all addresses."""
    try:
        address = ipaddress.ip_address(socket.gethostbyname(host))
    except OSError:
        return ""
    if str(address) != LOOPBACK:
        return ""
    return "CommunicationParameters=NoCtldInAddrAny,NoInAddrAny\n"


def _accounting(layout: Layout, plan: Plan) -> str:
    if not plan.accounting:
        return "AccountingStorageType=accounting_storage/none"
    return f"""\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=localhost
AccountingStoragePort={plan.ports[1]}
AccountingStoragePass={layout.munge_socket}
AccountingStoreFlags=job_comment"""


def _nodes(plan: Plan, host: str) -> str:
    common = f"NodeHostname={host} NodeAddr={LOOPBACK} RealMemory=1024 State=UNKNOWN"
    cores = {name: os.cpu_count() or 1 for name in plan.node_names} | {"q1": max(4, plan.qpus)}
    extra = {"q1": f" Gres=qpu:{plan.qpus}"}
    return "\n".join(
        f"NodeName={name} Port={port} CPUs={cores[name]} {common}{extra.get(name, '')}"
        for name, port in zip(plan.node_names, plan.ports[2:], strict=True)
    )
