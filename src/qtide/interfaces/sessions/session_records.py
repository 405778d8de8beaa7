"""The records of a named session: its calls in order, with their outcomes."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from qtide.core.errors import QtideError
from qtide.core.values import Packed, Unstorable, Values
from qtide.interfaces.sessions.call_batch import Outcome
from qtide.interfaces.sessions.session_call import SessionCall
from qtide.programs.journal import Journal, JournalRecord


class SessionRecords:
    """Finds and records calls; an unnamed session records nothing."""

    def __init__(self, journal: Journal, values: Values, *, named: bool) -> None:
        self._journal = journal
        self._values = values
        self._named = named
        self._lock = threading.Lock()

    def answered(self, call: SessionCall) -> bool:
        """Resolve a call with its result from the journal; return whether there is one.

        Refuse the call if the journal has another call at that position.
        """
        record = self.find(call.key)
        if record is None:
            return False
        if record.asked != call.asked:
            raise QtideError(
                f"the script no longer fits its journal: call {call.key} is «{record.asked}» in "
                f"the journal, but the script asks for «{call.asked}»; undo the change, or give "
                "the session a new name"
            )
        found = self._values.unpack(Packed.from_json(record.outcome))
        call.future.resolve(None, found) if record.failed else call.future.resolve(found)
        return True

    def find(self, key: str) -> JournalRecord | None:
        """Return the record at `key`, if there is one."""
        return self._journal.find(key) if self._named else None

    def append(self, record: JournalRecord) -> None:
        """Record something other than a call, such as a choice."""
        if self._named:
            with self._lock:
                self._journal.append(record)

    def keep(self, outcomes: Sequence[Outcome], *, failed: bool = False) -> None:
        """Record results before the script sees them; record a failure only if the script goes on.

        A failure that ends the script is not recorded, so that the call is repeated on resumption.
        """
        if not self._named:
            return
        kept = [
            JournalRecord(
                call.key, call.asked, self._pack(call, error if failed else value), failed
            )
            for call, value, error in outcomes
            if (error is not None) is failed
        ]
        if kept:
            with self._lock:
                self._journal.extend(kept)

    def _pack(self, call: SessionCall, value: Any) -> dict[str, Any]:
        try:
            return self._values.pack(value).as_json()
        except Unstorable as error:
            raise QtideError(
                f"the result of call {call.key}, «{call.asked}», cannot be stored: {error}; "
                "return plain data or arrays, or give the session no name"
            ) from None
