"""A program that names its shots, to be run by its file."""

from qtide import program, quantum

FLIP = """OPENQASM 3.0;
include "stdgates.inc";
bit[1] c;
qubit[1] q;
rx(pi) q[0];
c[0] = measure q[0];
"""


@program
async def rows() -> list[int]:
    """The rows of each circuit: with one shot, with 300 for each of two, with the default."""
    answers = [await quantum(FLIP, shots=1), await quantum([FLIP, FLIP], shots=300)]
    answers.append(await quantum(FLIP))
    return [len(shots.rows("c")) for answer in answers for shots in answer]
