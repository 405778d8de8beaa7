"""Failures that a user can act on: each is one sentence: what was wrong, where, what to do."""


class QtideError(Exception):
    """Something failed; the command ends with exit code 1."""

    exit_code = 1


class UsageError(QtideError):
    """The request is wrong or impossible; the command ends with exit code 2."""

    exit_code = 2


class NotEnoughNodes(UsageError):  # noqa: N818 - says what is wrong
    """More nodes were requested than can be granted."""


class NodeUnusable(NotEnoughNodes):
    """A node was granted, but no agent started on it."""

    exit_code = 1


class PhaseError(Exception):
    """A phase could not be run; the program may catch this and continue without it."""


class TimedOut(PhaseError, TimeoutError):  # noqa: N818 - what happened
    """A task or a payload ran for longer than its `within` allows, and was ended."""
