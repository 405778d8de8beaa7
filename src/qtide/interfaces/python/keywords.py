"""The options of runs as keywords, so that a type checker finds misspelt names.

At run time, the plug-ins declare their options; a test compares them with these.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypedDict


class PluginKeywords(TypedDict, total=False):
    """Options of qtide's own clusters and strategies."""

    memory: int | str
    cores: int
    gpus: int
    kind: list[str]
    share_nodes: str
    billing: str
    cold: bool
    durations: str
    account: str
    qos: str
    constraint: str
    time_limit: str
    salloc: list[str]
    qpu_by: str
    qpu_partition: str
    favour: float | str
    time_weight: float | str
    idle_share: float
    expand_timeout: float
    engine: str
    modules: str
    wrapper: str
    launcher: str


class RunKeywords(PluginKeywords, total=False):
    """Options of a run."""

    strategy: str
    cluster: str
    qpu: str
    nodes: int
    vqpus: int
    time_scale: float
    seed: int
    needs: str
    name: str
    runs: str | Path
    driver: str
    driver_option: list[str]
