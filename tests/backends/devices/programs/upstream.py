"""The device of kind `iqm` in an environment with IQM's client; prints each step's outcome as JSON.

Arguments: the server's URL and a file with a token. This needs only the source of qtide.
"""

import json
import sys
from collections.abc import Callable
from math import pi
from typing import Any

from qtide.backends.devices.iqm_server import IqmServer
from qtide.backends.payloads.formats.iqm import IqmBatch, IqmCircuit, Operation
from qtide.core.errors import PhaseError, QtideError

FLIP = {"angle": pi, "phase": 0}
HALF = {"angle": pi / 2, "phase": pi / 2}


def batch(*operations: Operation, mapping: dict[str, str] | None = None) -> IqmBatch:
    return IqmBatch((IqmCircuit("circuit", operations, {"of": "a test"}),), mapping)


def measured(**counts: list[str]) -> list[Operation]:
    return [Operation("measure", tuple(locus), {"key": key}) for key, locus in counts.items()]


def sentence(call: Callable[[], Any]) -> str:
    try:
        call()
    except (PhaseError, QtideError) as error:
        return f"{type(error).__name__}: {error}"
    return "nothing was wrong"


def device(url: str, token: str, **options: Any) -> IqmServer:
    return IqmServer(url, quantum_computer="star", token_file=token, **options)


def main(url: str, token: str) -> dict[str, Any]:
    star = device(url, token)
    star.warm_up()
    flipped = batch(
        Operation("prx", ("a",), FLIP),
        *measured(one=["a", "b"], two=["a"]),
        mapping={"a": "QB3", "b": "QB1"},
    )
    half = batch(Operation("prx", ("QB1",), HALF), *measured(m=["QB1"]))
    far = batch(Operation("cz", ("QB1", "QB2")), *measured(m=["QB1"]))
    star.check(flipped)
    return {
        "properties": star.properties(),
        "flipped": [one.to_json() for one in star.solve(flipped, 20, seed=0)],
        "half": star.solve(half, 1000, seed=0)[0].counts(),
        "far": sentence(lambda: star.check(far)),
        "text": sentence(lambda: star.check("OPENQASM 3.0;")),
        "shots": sentence(lambda: star.solve(half, 0, seed=0)),
        "late": sentence(lambda: device(url, token, limit=0.0).solve(half, 50_000, seed=0)),
        "stranger": sentence(device(url, "/dev/null").warm_up),
        "no token": sentence(device(url, "/nowhere").warm_up),
        "nobody": sentence(device("http://127.0.0.1:9", token).properties),
    }


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
