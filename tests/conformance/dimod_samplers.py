"""dimod's own tests of samplers, on the annealer of the service."""

from __future__ import annotations

import sys
import unittest

import dimod
import dimod.testing

import qtide


@dimod.testing.load_sampler_bqm_tests(qtide.qpu("annealer").sampler())
class Samplers(unittest.TestCase):
    pass


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
