"""Commands called within the test's own process, which is faster than a process for each."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from typer.testing import CliRunner, Result

from qtide.core.errors import QtideError
from qtide.interfaces.cli.main import application


def called(*words: object, env: Mapping[str, str | None] | None = None) -> Result:
    """Call a command; its errors are left in the result."""
    texts = [str(word) for word in words]
    return CliRunner().invoke(application(), texts, prog_name="qtide", env=env)


def printed(*words: object) -> str:
    """What a command prints to stdout; it has to succeed."""
    done = called(*words)
    assert done.exit_code == 0, (done.output, done.exception)
    return done.stdout


def refused(*words: object, code: int = 2) -> str:
    """The error by which a command is refused."""
    done = called(*words)
    if isinstance(done.exception, QtideError):
        assert done.exception.exit_code == code
        return str(done.exception)
    if not isinstance(done.exception, SystemExit):
        pytest.fail(f"no sentence but {done.exception!r}")
    assert done.exit_code == code
    return done.output
