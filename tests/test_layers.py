"""The import contracts of pyproject.toml cover the whole package."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "qtide"


def named() -> set[str]:
    """Every module that a contract names, without the leading `qtide.`."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    found: set[str] = set()
    for contract in settings["contracts"]:
        within = contract.get("containers", [""])[0]
        layers = (each for line in contract.get("layers", []) for each in line.split(" | "))
        found |= {f"{within}.{each}" for each in layers}
        found |= {*contract.get("source_modules", []), *contract.get("forbidden_modules", [])}
    return {each.removeprefix("qtide.") for each in found}


def packages(folder: Path) -> set[str]:
    """The folders and files of a package that can be imported."""
    files = {each.stem for each in folder.glob("*.py")} - {"__init__", "__main__"}
    return files | {each.parent.name for each in folder.glob("*/__init__.py")}


def test_a_contract_names_every_top_level_package() -> None:
    assert packages(PACKAGE) - named() == set()


def test_only_the_command_line_is_free_to_use_what_stands_beside() -> None:
    free = packages(PACKAGE / "interfaces") - {
        each.removeprefix("interfaces.") for each in named() if each.startswith("interfaces.")
    }
    assert free == {"cli"}


def test_contracts_name_only_what_exists() -> None:
    assert [each for each in named() if not exists(each)] == []


def exists(module: str) -> bool:
    path = PACKAGE.joinpath(*module.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()
