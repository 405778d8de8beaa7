"""Builds libqtide, the library for malleable C, C++ and Fortran programs, with the user's MPI."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from qtide.core.errors import QtideError, UsageError
from qtide.core.version import __version__

SOURCES = Path(__file__).parent / "c"
FLAGS = ("-std=c11", "-O2", "-Wall", "-fPIC", "-pthread", "-fvisibility=hidden")
LIMIT = 120.0
"""Seconds that a compiler may take."""
PKG_CONFIG = """\
prefix={prefix}

Name: qtide
Description: MPI programs that grow and shrink while they run
Version: {version}
Cflags: -I${{prefix}}/include
Libs: -L${{prefix}}/lib -Wl,-rpath,${{prefix}}/lib -lqtide -pthread
"""
CMAKE = """\
# find_package(qtide) gives the target qtide::qtide, and qtide::fortran if it was built
include(CMakeFindDependencyMacro)
find_dependency(MPI COMPONENTS C)
find_dependency(Threads)
get_filename_component(_qtide "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
if(NOT TARGET qtide::qtide)
  add_library(qtide::qtide SHARED IMPORTED)
  set_target_properties(qtide::qtide PROPERTIES
    IMPORTED_LOCATION "${_qtide}/lib/libqtide.so"
    INTERFACE_INCLUDE_DIRECTORIES "${_qtide}/include"
    INTERFACE_LINK_LIBRARIES "MPI::MPI_C;Threads::Threads")
  if(EXISTS "${_qtide}/lib/libqtide_fortran.a")
    add_library(qtide::fortran STATIC IMPORTED)
    set_target_properties(qtide::fortran PROPERTIES
      IMPORTED_LOCATION "${_qtide}/lib/libqtide_fortran.a"
      INTERFACE_LINK_LIBRARIES "qtide::qtide")
  endif()
endif()
"""


def build(to: Path, cc: str = "mpicc", fc: str | None = None) -> list[Path]:
    """Build the library into a folder; return the files that it consists of.

    The Fortran module is built if `fc` is given, or if there is an `mpifort` beside `mpicc`.
    """
    to = to.absolute()
    compiler = _compiler(cc)
    for folder in ("include", "lib/pkgconfig", "lib/cmake/qtide"):
        (to / folder).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        _build_library(Path(name), to, compiler)
        fortran = fc or _beside(compiler[0])
        made = _build_fortran(Path(name), to, _compiler(fortran)) if fortran else []
    headers = [to / "include" / each.name for each in SOURCES.glob("qtide*.h")]
    for each in headers:
        shutil.copy(SOURCES / each.name, each)
    texts = {
        to / "lib/pkgconfig/qtide.pc": PKG_CONFIG.format(prefix=to, version=__version__),
        to / "lib/cmake/qtide/qtideConfig.cmake": CMAKE,
    }
    for file, text in texts.items():
        file.write_text(text)
    return [*headers, to / "lib/libqtide.so", to / "lib/libqtide.a", *made, *texts]


def build_alone(source: Path, to: Path) -> None:
    """Build a shared library of one source that needs no MPI, with the system's compiler."""
    to.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=to.parent) as name:
        made = Path(name) / to.name
        _call(Path(name), *_compiler("cc"), *FLAGS, "-shared", "-o", str(made), str(source), "-ldl")
        made.replace(to)  # at once: others may be building it, too


def _compiler(words: str) -> list[str]:
    """The words of a compiler, with its whole path, as it is called in another folder."""
    name, *flags = shlex.split(words) or [""]
    found = shutil.which(name)
    if found is None:
        raise UsageError(f"there is no {name}; name your MPI's compiler with --cc or --fc")
    return [str(Path(found).absolute()), *flags]


def _build_library(folder: Path, to: Path, compiler: list[str]) -> None:
    python = f'-DQTIDE_PYTHON="{sys.executable}"'
    sources = sorted(SOURCES.glob("*.c"))
    _call(folder, *compiler, *FLAGS, python, "-c", *map(str, sources))
    objects = [f"{source.stem}.o" for source in sources]
    _call(folder, *compiler, "-shared", "-pthread", "-o", str(to / "lib/libqtide.so"), *objects)
    # one object whose inner names cannot clash with those of the program
    _call(folder, "ld", "-r", "-o", "whole.o", *objects)
    _call(folder, "objcopy", "--localize-hidden", "whole.o")
    _archive(folder, to / "lib/libqtide.a", "whole.o")


def _build_fortran(folder: Path, to: Path, compiler: list[str]) -> list[Path]:
    library, module = to / "lib/libqtide_fortran.a", to / "include/qtide.mod"
    _call(folder, *compiler, "-O2", "-fPIC", "-c", str(SOURCES / "qtide.f90"), "-o", "fortran.o")
    _archive(folder, library, "fortran.o")
    shutil.copy(folder / "qtide.mod", module)
    return [library, module]


def _archive(folder: Path, library: Path, item: str) -> None:
    library.unlink(missing_ok=True)
    _call(folder, "ar", "rcs", str(library), item)


def _beside(compiler: str) -> str | None:
    """Return the Fortran compiler of the same MPI as a C compiler, if there is one."""
    found = Path(shutil.which(compiler) or "")
    other = found.with_name(found.name.replace("mpicc", "mpifort"))
    return str(other) if other != found and other.exists() else None


def _call(folder: Path, *words: str) -> None:
    try:
        done = subprocess.run(
            words, cwd=folder, capture_output=True, text=True, timeout=LIMIT, check=False
        )
    except FileNotFoundError:
        raise UsageError(f"there is no {words[0]}; install a C compiler with binutils") from None
    except subprocess.TimeoutExpired:
        raise QtideError(f"{words[0]} did not end within {LIMIT:g} s") from None
    if done.returncode:
        raise QtideError(f"{shlex.join(words)} failed:\n{done.stderr.strip()}")
