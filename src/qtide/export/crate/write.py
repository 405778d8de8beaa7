"""Writes a crate: as a folder, or as one archive."""

from __future__ import annotations

import shutil
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

from qtide.errors import UsageError
from qtide.export.crate.crate import Crate, finished
from qtide.runs.folder import RunFolder


def export_crate(run: RunFolder, output: Path, licence: str) -> Path:
    """Write the record of a finished run to a new folder or, if it is named so, to a .zip file."""
    crate = Crate(finished(run), licence)
    if output.exists():
        raise UsageError(f"{output} exists already; name a new folder or file with -o")
    try:
        _archive(crate, output) if output.suffix == ".zip" else _folder(crate, output)
    except OSError as error:
        raise UsageError(f"{output} cannot be written ({error.strerror}); name another") from None
    return output


def _folder(crate: Crate, output: Path) -> None:
    for name, text in crate.texts.items():
        _place(output, name).write_text(text, encoding="utf-8")
    for name, path in crate.copies.items():
        shutil.copyfile(path, _place(output, name))


def _place(output: Path, name: str) -> Path:
    path = output / name
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _archive(crate: Crate, output: Path) -> None:
    output.parent.mkdir(parents=True, exist_ok=True)
    with ZipFile(output, "w", ZIP_DEFLATED) as archive:
        for name, text in crate.texts.items():
            archive.writestr(name, text)
        for name, path in crate.copies.items():
            archive.write(path, name)
