"""Why a caller is not admitted: three cases, since the API answers each of them differently."""

from __future__ import annotations

from qtide.errors import QtideError


class Refused(QtideError):  # noqa: N818 - what happened
    """The job has no right to a QPU (HTTP 403)."""


class Unproven(Refused):
    """The credential proves nothing: forged, replayed, expired, for another request (401)."""


class Unreachable(QtideError):  # noqa: N818 - what happened
    """Munge or Slurm gave no answer, so the caller is not admitted and should try again (503)."""
