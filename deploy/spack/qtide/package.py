"""Spack recipe of qtide: copy the folder deploy/spack/qtide to a repository's packages."""

from spack.package import PythonPackage, depends_on, license, variant, version  # noqa: A004 - Spack's


class PyQtide(PythonPackage):
    """Hybrid HPC and quantum programs under every allocation strategy, and a vQPU service."""

    homepage = "https://qtide.example.invalid"
    license("Apache-2.0")
    version("0.1.0")

    variant("serve", default=True, description="The vQPU service")

    depends_on("python@3.11:", type=("build", "run"))
    depends_on("py-hatchling@1.25:", type="build")
    for _name in (
        "py-cloudpickle@3:",
        "py-dimod@0.12.18:",
        "py-dwave-samplers@1.3:",
        "py-matplotlib@3.10.5:",
        "py-numpy@2.0:",
        "py-pydantic@2.7:",
        "py-rich@13.9.4:",
        "py-typer@0.20:",
        "py-urllib3@2.7:",
    ):
        depends_on(_name, type=("build", "run"))
    for _name in (
        "py-fastapi@0.133:",
        "py-httptools@0.6.4:",
        "py-prometheus-client@0.21:",
        "py-starlette@1.3.1:",
        "py-uvloop@0.21:",
    ):
        depends_on(_name, type=("build", "run"), when="+serve")
