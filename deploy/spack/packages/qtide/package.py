"""Spack recipe of qtide. In the folder of the source:

    spack repo add deploy/spack
    spack dev-build qtide@0.1.0

Spack lacks dimod and dwave-samplers, and its FastAPI and others are too old. So the Python packages
come from a package index, in the versions and with the hashes of constraints.txt.
"""

from typing import Any

from spack.package import Executable, depends_on, license, variant, version  # noqa: A004 - Spack's

try:
    from spack_repo.builtin.build_systems.generic import Package
except ImportError:  # Spack before 1.0
    from spack.package import Package

EXTRAS = {
    "clustering": "The clustering application",
    "colouring": "The colouring application",
    "gate": "Circuits, and emulated gate devices",
    "mpi": "MPI programs that grow and shrink",
    "serve": "The vQPU service",
}


class Qtide(Package):
    """Hybrid HPC and quantum programs under every allocation strategy, and a vQPU service."""

    homepage = "https://qtide.example.invalid"
    license("Apache-2.0")
    version("0.1.0")

    for _name, _words in EXTRAS.items():
        variant(_name, default=_name == "gate", description=_words)
    depends_on("python@3.11:", type=("build", "run"))

    def install(self, spec: Any, prefix: str) -> None:
        """Make the environment in the prefix; its `bin` has `qtide` and a Python that knows it."""
        extras = [name for name in EXTRAS if f"+{name}" in spec]
        Executable("deploy/environment.sh")(prefix, spec["python"].command.path, ",".join(extras))
