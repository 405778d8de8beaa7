"""Where names used to be: values in journals of earlier versions refer to the old ones."""

from __future__ import annotations

MOVED = {
    "qtide.broker": "qtide.service",
    "qtide.broker.admission.deployment": "qtide.slurm.prolog.deployment",
    "qtide.broker.admission.licences": "qtide.slurm.licences",
    "qtide.broker.admission.prolog": "qtide.slurm.prolog.prolog",
    "qtide.broker.admission.slots": "qtide.slurm.slots",
    "qtide.broker.process": "qtide.devices.process",
    "qtide.broker.worker": "qtide.devices.worker",
    "qtide.clusters.cluster.NotEnoughNodes": "qtide.errors.NotEnoughNodes",
    "qtide.clusters.slurm": "qtide.slurm",
    "qtide.clusters.slurm.allocation.AgentFailed": "qtide.errors.NodeUnusable",
    "qtide.clusters.slurm.box": "qtide.box",
    "qtide.clusters.slurm.line": "qtide.slurm.requests",
    "qtide.clusters.slurm.slots": "qtide.slurm.leases",
    "qtide.programs.job": "qtide.jobs.job",
    "qtide.programs.values": "qtide.jobs.values",
    "qtide.qpus": "qtide.leases",
    "qtide.qpus.devices": "qtide.devices",
    "qtide.qpus.formats": "qtide.payloads.formats",
    "qtide.qpus.formats.parcel": "qtide.payloads.encoded",
    "qtide.qpus.formats.parcel.Parcel": "qtide.payloads.encoded.Encoded",
    "qtide.qpus.payload": "qtide.payloads.payload",
    "qtide.qpus.profile": "qtide.devices.profile",
    "qtide.qpus.shots": "qtide.payloads.shots",
    "qtide.slurm": "qtide.slurm.commands",
}
"""Old packages, modules and classes that a value may refer to, and where they are today."""


def home(module: str, name: str) -> tuple[str, str] | None:
    """Where a name of an old module is today, by its longest prefix; None if it never moved."""
    place = f"{module}.{name}"
    for old in sorted(MOVED, key=len, reverse=True):
        if place.startswith(f"{old}.") or place == old:
            words = (MOVED[old] + place.removeprefix(old)).split(".")
            end = len(words) - name.count(".") - 1
            return ".".join(words[:end]), ".".join(words[end:])
    return None
