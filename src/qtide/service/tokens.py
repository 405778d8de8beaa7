"""Tokens that identify callers: random, stored only as digests, and revocable at any time.

A job's token ends with the job: the service regularly asks Slurm which jobs still run.
"""

from __future__ import annotations

import grp
import pwd
import secrets
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from qtide.core.errors import QtideError
from qtide.service.admission import Holder
from qtide.service.audit import AuditTrail
from qtide.service.store import Database, Store
from qtide.service.task import Caller

PREFIX = "qtide_"
FRESH = 2.0
"""Seconds to cache a lookup; a revoked token may stay valid for that long."""


class NotAllowed(QtideError):  # noqa: N818 - named after what happened
    """The caller has no valid token."""


@dataclass(frozen=True)
class Token:
    """What the store knows about a token, except the token itself."""

    digest: str
    caller: Caller
    created: float
    expires: float
    name: str
    holder: Holder | None = None
    """The Slurm job or component with which it ends."""


def issue(
    caller: Caller, lasts: float, name: str = "", holder: Holder | None = None
) -> tuple[str, Any]:
    """Make a new token, and the write that makes it valid."""
    token = PREFIX + secrets.token_urlsafe(32)
    now = time.time()
    values = (digest(token), caller.user, caller.account, caller.job, int(caller.operator))
    slot = (holder.job, holder.start) if holder else (None, None)
    row = (*values, now, now + lasts, name, *slot)
    words = f"INSERT INTO tokens VALUES ({', '.join('?' * len(row))})"
    return token, lambda store: store.execute(words, row)


def revoke(digest_start: str) -> Any:
    """Delete the tokens whose digest starts so; returns how many there were."""
    words = "DELETE FROM tokens WHERE substr(digest, 1, ?) = ?"
    return lambda store: store.execute(words, (len(digest_start), digest_start)).rowcount


def end_with(holders: Iterable[Holder]) -> Any:
    """Delete the tokens of jobs that have ended."""
    words = "DELETE FROM tokens WHERE holder = ? AND holder_start = ?"
    rows = [(each.job, each.start) for each in holders]
    return lambda store: store.executemany(words, rows)


def sweep(now: float) -> Any:
    """Delete expired tokens."""
    return lambda store: store.execute("DELETE FROM tokens WHERE expires < ?", (now,))


def valid(store: Database) -> list[Token]:
    """All tokens that have not expired."""
    rows = store.execute("SELECT * FROM tokens WHERE expires > ? ORDER BY created", (time.time(),))
    return [_token(row) for row in rows]


def record_operators(users: Iterable[str]) -> Any:
    """Record the operators that the configuration names, for `qtide token list`."""
    rows = [(user,) for user in users]

    def action(store: Database) -> None:
        store.execute("DELETE FROM operators")
        store.executemany("INSERT INTO operators VALUES (?) ON CONFLICT DO NOTHING", rows)

    return action


def operates(store: Database, caller: Caller) -> bool:
    """Whether a token is an operator's: by itself, or as that of a configured operator."""
    named = "SELECT 1 FROM operators WHERE user = ?"
    by_name = caller.job is None and store.execute(named, (caller.user,)).fetchone() is not None
    return caller.operator or by_name


def holders(store: Database) -> set[Holder]:
    """The jobs and components whose end ends a token."""
    return {token.holder for token in valid(store) if token.holder is not None}


def digest(token: str) -> str:
    """The digest stored in place of a token."""
    return sha256(token.encode()).hexdigest()


def is_valid(store: Store, token: str) -> bool:
    """Whether a token is known and valid."""
    found = store.read(lambda rows: _find(rows, digest(token)))
    return found is not None and found.expires > time.time()


FIRST_USE = "token first used"


def short(digest: str) -> str:
    """The name of a token: the beginning of its digest, as `qtide token list` shows it."""
    return digest[:12]


class Register:
    """Looks up and issues tokens."""

    def __init__(
        self, store: Store, operators: Iterable[str], audit: AuditTrail | None = None
    ) -> None:
        self._store = store
        self._audit = audit or AuditTrail(None)
        entries = self._audit.entries(most=1)
        self._used = {each["token"] for each in entries if each["event"] == FIRST_USE}
        """Names of the tokens that are known to have been used before."""
        self.operators = frozenset(operators)
        """Users and, as `@GROUP`, groups whose members operate the service."""
        self._seen: dict[str, tuple[float, Token]] = {}

    def caller(self, token: str) -> Caller:
        """The caller that a token belongs to; raises `NotAllowed` for an invalid one."""
        key, now = digest(token), time.monotonic()
        looked_up, found = self._seen.get(key, (0.0, None))
        if found is None or now - looked_up > FRESH:
            found = self._store.read(lambda store: _find(store, key))
            if found is None:
                self._seen.pop(key, None)
                raise NotAllowed("the token is not known here, or its job has ended; get a new one")
            self._seen[key] = (now, found)
            self._note_use(found)
        if found.expires < time.time():
            raise NotAllowed("the token has expired; get a new one")
        return found.caller if found.caller.operator else self._with_rights(found.caller)

    def _note_use(self, token: Token) -> None:
        """Record the first use of a token; the trail itself tells which ones were used before."""
        if (name := short(token.digest)) not in self._used:
            self._used.add(name)
            self._audit.record(FIRST_USE, token.caller.user, token=name, job=token.caller.job)

    async def issue(self, caller: Caller, lasts: float, name: str, holder: Holder) -> str:
        """Issue a token that ends with a job or a component of one."""
        token, write = issue(caller, lasts, name, holder)
        await self._store.write(write)
        made = short(digest(token))
        self._audit.record(
            "token made", caller.user, "a job was admitted", token=made, job=caller.job
        )
        return token

    def holders(self) -> set[Holder]:
        """The jobs and components whose end ends a token."""
        return self._store.read(holders)

    def count(self, holder: Holder) -> int:
        """Number of valid tokens that end with this job or component."""
        words = "SELECT count(*) FROM tokens WHERE holder = ? AND holder_start = ? AND expires > ?"
        values = (holder.job, holder.start, time.time())
        found: int = self._store.read(lambda db: db.execute(words, values).fetchone()[0])
        return found

    async def end_with(self, over: Iterable[Holder]) -> None:
        """Delete the tokens of jobs that have ended, effective at once."""
        over = list(over)
        await self._store.write(end_with(over))
        for each in over:
            self._audit.record("token revoked", "the service", "its job ended", job=each.job)
        self._seen.clear()

    def person(self, user: str, account: str, groups: Iterable[str]) -> Caller:
        """A caller who is known by another identity than a token of the service."""
        claimed = any(f"@{group}" in self.operators for group in groups)
        return self._with_rights(Caller(user, account, operator=claimed))

    def _with_rights(self, caller: Caller) -> Caller:
        """Add a configured operator's rights, except to tokens of jobs."""
        operator = caller.operator or (caller.user in self.operators and caller.job is None)
        return Caller(caller.user, caller.account, caller.job, operator)


def with_members(operators: Iterable[str]) -> frozenset[str]:
    """The operators with the members that this host's groups have now; may ask a directory."""
    found = set(operators)
    for group in [each[1:] for each in found if each.startswith("@")]:
        with suppress(KeyError):  # it may be a group of an identity provider only
            entry = grp.getgrnam(group)
            found |= {*entry.gr_mem}
            found |= {each.pw_name for each in pwd.getpwall() if each.pw_gid == entry.gr_gid}
    return frozenset(found)


def _find(store: Database, key: str) -> Token | None:
    row = store.execute("SELECT * FROM tokens WHERE digest = ?", (key,)).fetchone()
    return _token(row) if row else None


def _token(row: Any) -> Token:
    caller = Caller(row["user"], row["account"], row["job"], bool(row["operator"]))
    holder = Holder(row["holder"], row["holder_start"]) if row["holder"] is not None else None
    return Token(row["digest"], caller, row["created"], row["expires"], row["name"], holder)
