"""Which gates a gate device takes, by Qiskit's names: the qubits and parameters of each."""

from __future__ import annotations

NATIVE = {"r": (1, 2), "rx": (1, 1), "ry": (1, 1), "x": (1, 0), "y": (1, 0), "cz": (2, 0)}
"""The gates that IQM's clients convert to `prx` and `cz`."""

OPERATIONS = ("prx", "cc_prx", "cz", "measure", "reset", "barrier", "delay")
"""The operations that every gate device takes, by IQM's names."""

ONE = {
    **dict.fromkeys(("x", "y", "z", "h", "s", "sdg", "t", "tdg", "sx", "sxdg"), (1, 0)),
    **dict.fromkeys(("p", "rx", "ry", "rz", "u1"), (1, 1)),
    **dict.fromkeys(("r", "u2"), (1, 2)),
    **dict.fromkeys(("u", "u3"), (1, 3)),
}

TWO = {
    **dict.fromkeys(("cx", "cy", "cz", "swap", "ecr"), (2, 0)),
    **dict.fromkeys(("cp", "crx", "cry", "crz", "rxx", "ryy", "rzz", "rzx"), (2, 1)),
    "cu": (2, 4),
}

THREE = {"ccx": (3, 0), "ccz": (3, 0), "cswap": (3, 0)}

ALWAYS = {"id": (1, 0), "reset": (1, 0), "measure": (1, 0)}
"""In addition to these: barriers, delays and `if_else`."""
