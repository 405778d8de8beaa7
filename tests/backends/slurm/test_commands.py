from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from qtide.backends.clusters.kind import Setting
from qtide.backends.clusters.slurm.commands import Slurm, SlurmFailed, environment, reason
from qtide.backends.clusters.slurm.companion import CompanionOptions
from qtide.backends.clusters.slurm.slurm_cluster import SlurmCluster
from qtide.backends.clusters.slurm.slurm_kind import SlurmKind
from qtide.core.errors import UsageError
from qtide.core.world.real import RealWorld
from tests.backends.slurm.stage import Stage


def test_the_job_around_us_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    around = ("SLURM_JOB_ID", "SLURMD_NODENAME", "SALLOC_PARTITION", "SRUN_DEBUG", "PMI_RANK")
    for key in around:
        monkeypatch.setenv(key, "7")
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm/own.conf")
    kept = environment()
    assert not set(around) & set(kept)
    assert kept["SLURM_CONF"] == "/etc/slurm/own.conf"
    assert environment(Path("/other.conf"))["SLURM_CONF"] == "/other.conf"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "salloc: error: Job submit/allocate failed: Invalid qos",
            "Job submit/allocate failed: Inv",
        ),
        ("salloc: Pending job allocation 5\nsalloc: error: first\nsalloc: error: second", "first"),
        (
            "sinfo: fatal: Could not establish a configuration",
            "Could not establish a configuration",
        ),
        ("salloc: Job allocation 5 has been revoked.", "salloc: Job allocation 5 has been"),
        ("", "it gave no reason"),
    ],
)
def test_why_a_command_failed(text: str, why: str) -> None:
    assert reason(text).startswith(why)


def test_a_command_that_hangs_is_ended() -> None:
    world = RealWorld()
    with pytest.raises(SlurmFailed, match=r"sleep gave no answer within 0\.05 s"):
        world.run(Slurm().output("sleep", "60", limit=0.05))


def test_a_command_that_is_not_there_is_named() -> None:
    with pytest.raises(SlurmFailed, match="there is no no-such-command here"):
        RealWorld().run(Slurm().output("no-such-command"))


def test_the_words_of_salloc_are_words_whatever_they_hold() -> None:
    hostile = "a b; rm -rf 'x' \"y\"\n$(z) é"
    words = CompanionOptions(partition=hostile, qos="q", extra=("--reservation=r s",)).salloc(
        "n", "c", "1-3"
    )
    assert f"--partition={hostile}" in words
    assert {"--nodes=1-3", "--qos=q", "--reservation=r s", "--exclusive", "--no-kill"} <= set(words)
    assert "--exclusive" not in CompanionOptions(whole_nodes=False).salloc("n", "c", "1")


@pytest.mark.parametrize(
    "name", ["a b", "q'u\"o", "new\nline", "höhe 量子", "$(touch x);|&", "%41,a"]
)
def test_any_name_of_a_run_is_safe(stage: Stage, name: str) -> None:
    async def scene(cluster: SlurmCluster) -> str:
        allocation = await cluster.request(stage.job(name), 1)
        (shown,) = stage.slurm("squeue", "-h", "-o", "%j").splitlines()
        await allocation.release()
        return shown

    shown = stage.play(scene)
    assert shown.startswith("qtide-")
    assert shown.isascii() and not set(shown) & set(" '\"\n$;|,")


@pytest.mark.parametrize(
    ("name", "value"),
    [("account", "physics\n#SBATCH --wrap=id"), ("qos", "a\x1b[1m"), ("salloc", ["--x=1\r"])],
)
def test_an_option_that_would_begin_a_line_of_its_own_is_refused(name: str, value: Any) -> None:
    with pytest.raises(UsageError, match=f"--{name} has characters that cannot be printed"):
        SlurmKind().check(Setting(given={name: value}))
    SlurmKind().check(Setting("compute", given={"account": "physics", "salloc": ["--x=1"]}))


def test_a_partition_is_one_word() -> None:
    with pytest.raises(UsageError, match="--cluster has characters that cannot be printed"):
        SlurmKind().check(Setting("compute\nb"))
