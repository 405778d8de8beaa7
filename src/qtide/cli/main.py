"""The command `qtide`: turns errors into sentences and exit codes."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from qtide.errors import QtideError
from qtide.version import __version__

if TYPE_CHECKING:
    import typer

INTERRUPTED = 130


def application() -> typer.Typer:
    """The command line."""
    from qtide.cli.application import application as made  # the version needs no other import

    return made()


def main(words: list[str] | None = None) -> None:
    """Run the command line."""
    words = sys.argv[1:] if words is None else words
    if words == ["--version"]:
        sys.stdout.write(f"qtide {__version__}\n")
        return
    from asyncio import CancelledError

    try:
        application()(words, prog_name="qtide")
    except QtideError as error:
        if "--traceback" in words:
            raise
        _end(str(error), error.exit_code)
    except OSError as error:
        if "--traceback" in words:
            raise
        where = f"{error.filename}: " if error.filename else ""
        _end(f"{where}{error.strerror}; what was done is kept", 1)
    except CancelledError:
        _end(
            "interrupted; everything was given back; continue with: qtide resume last", INTERRUPTED
        )


def _end(sentence: str, code: int) -> None:
    sys.stderr.write(f"qtide: {sentence}\n")
    sys.exit(code)


if __name__ == "__main__":
    main()
