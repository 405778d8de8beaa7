"""Values that earlier versions pickled are found under today's names."""

import pickle
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from qtide.jobs.moved import MOVED, home
from qtide.jobs.values import Packed, Values

OLD = {
    "qtide.clusters.cluster NodeLost": "qtide.clusters.cluster NodeLost",
    "qtide.clusters.cluster NotEnoughNodes": "qtide.errors NotEnoughNodes",
    "qtide.clusters.slurm.allocation AgentFailed": "qtide.errors NodeUnusable",
    "qtide.clusters.slurm.box.daemons BoxFailed": "qtide.box.daemons BoxFailed",
    "qtide.clusters.slurm.companion SlurmRefused": "qtide.slurm.companion SlurmRefused",
    "qtide.clusters.slurm.line QueuedTooLong": "qtide.slurm.requests QueuedTooLong",
    "qtide.programs.values Unstorable": "qtide.jobs.values Unstorable",
    "qtide.qpus.devices.device DeviceFailed": "qtide.devices.device DeviceFailed",
    "qtide.qpus.formats.iqm IqmBatch": "qtide.payloads.formats.iqm IqmBatch",
    "qtide.qpus.formats.parcel AnswerUnreadable": "qtide.payloads.encoded AnswerUnreadable",
    "qtide.qpus.formats.parcel Parcel": "qtide.payloads.encoded Encoded",
    "qtide.qpus.formats.parcel Parcel.__init__": "qtide.payloads.encoded Encoded.__init__",
    "qtide.qpus.payload Burst": "qtide.payloads.payload Burst",
    "qtide.qpus.payload PayloadRefused": "qtide.payloads.payload PayloadRefused",
    "qtide.qpus.profile Profile": "qtide.devices.profile Profile",
    "qtide.qpus.qpu QpuFailed": "qtide.leases.qpu QpuFailed",
    "qtide.qpus.shots Shots": "qtide.payloads.shots Shots",
    "qtide.slurm SlurmFailed": "qtide.slurm.commands SlurmFailed",
    "qtide.slurm.cluster SlurmCluster": "qtide.slurm.cluster SlurmCluster",
}


def by_name(module: str, name: str) -> Any:
    """What a pickle that only names a class or function gives."""
    data = b"\x80\x04" + pickle.dumps(module, 4)[2:-1] + pickle.dumps(name, 4)[2:-1] + b"\x93."
    return Values(Path("nowhere")).unpack(Packed(data))


@pytest.mark.parametrize("old", OLD)
def test_a_class_is_found_by_its_old_name(old: str) -> None:
    found, today = by_name(*old.split()), by_name(*OLD[old].split())
    assert found is today
    assert f"{found.__module__} {found.__qualname__}" == OLD[old]


@pytest.mark.parametrize("old", sorted(MOVED))
def test_every_place_in_the_table_exists(old: str) -> None:
    place, _, name = MOVED[old].rpartition(".")
    if name[0].isupper():
        assert isinstance(getattr(import_module(place), name), type)
    else:
        assert import_module(MOVED[old]).__name__ == MOVED[old]


@pytest.mark.parametrize("module", ["qtide.qpusher", "qtide.nowhere", "qpus", "other.qtide.qpus"])
def test_only_what_moved_is_looked_for_elsewhere(module: str) -> None:
    assert home(module, "Shots") is None
    with pytest.raises(ModuleNotFoundError, match=module.partition(".")[0]):
        by_name(module, "Shots")
