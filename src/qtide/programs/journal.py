"""The journal: a run's durable record of finished phases; every strategy's checkpoint.

Each record is one line: a checksum, then JSON. A phase is done once its line is on disk.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

from qtide.core.errors import QtideError
from qtide.core.files import Locked, lock

TARGET = "target"
"""Key of the record of the program's target device; keys of phases are numbers."""
LOOKS = 3
"""Extra attempts to lock the journal while commands briefly inspect it."""


@dataclass(frozen=True)
class JournalRecord:
    """A finished phase: its place in the program, what it asked for, and its outcome."""

    key: str
    asked: str
    outcome: dict[str, Any]
    failed: bool = False


class Journal:
    """Open for one driver at a time; the file stays locked until `close` or the driver's death."""

    def __init__(self, path: Path, program: str) -> None:
        self.path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            self._lock()
            self._records = self._load(program)
        except BaseException:
            os.close(self._file)
            raise

    def find(self, key: str) -> JournalRecord | None:
        """The record of the phase at `key`, if there is one."""
        return self._records.get(key)

    def __len__(self) -> int:
        return len(self._records)

    def append(self, record: JournalRecord) -> None:
        """Write a record durably: when this returns, it survives a crash of the machine."""
        self.extend([record])

    def extend(self, records: Sequence[JournalRecord]) -> None:
        """Write records durably, all at once."""
        self._write(*map(_entry_of, records))
        self._records |= {record.key: record for record in records}

    def close(self) -> None:
        """Release the lock."""
        os.close(self._file)

    def _write(self, *entries: dict[str, Any]) -> None:
        end = os.fstat(self._file).st_size
        try:
            _write_all(self._file, b"".join(map(_line, entries)))
            os.fdatasync(self._file)
        except OSError as error:
            os.ftruncate(self._file, end)
            raise QtideError(
                f"the journal {self.path} cannot be written ({error.strerror}); its records are "
                "kept: make room, then resume the run"
            ) from error

    def _lock(self) -> None:
        try:
            self._lock_soon()
        except Locked:
            raise QtideError(
                f"another driver is working on {self.path.parent}; wait for it, or end it first"
            ) from None

    def _lock_soon(self) -> None:
        """Lock, with retries: a command inspecting the run also holds the lock for microseconds."""
        for _ in range(LOOKS):
            with suppress(Locked):
                return lock(self._file)
            time.sleep(0.01)
        return lock(self._file)

    def _load(self, program: str) -> dict[str, JournalRecord]:
        entries = self._read()
        if not entries:
            self._write({"program": program})
            return {}
        if entries[0].get("program") != program:
            raise QtideError(
                f"{self.path} is the journal of the program {entries[0].get('program')}, "
                f"not of {program}; name the right run, or start a new one"
            )
        records = (JournalRecord(**entry) for entry in entries[1:])
        return {record.key: record for record in records}

    def _read(self) -> list[dict[str, Any]]:
        """Read all records; cut off a torn last line; an earlier damaged line is an error."""
        lines = self.path.read_bytes().split(b"\n")
        entries, whole = [], 0
        for number, line in enumerate(lines[:-1], 1):
            entry = _entry(line)
            if entry is None and number < len(lines) - 1:
                raise QtideError(
                    f"{self.path} is damaged in line {number}; keep a copy, then delete that line "
                    "and all after it to resume from there"
                )
            if entry is not None:
                entries.append(entry)
                whole += len(line) + 1
        os.ftruncate(self._file, whole)
        return entries


def records(path: Path) -> dict[str, JournalRecord]:
    """Read a journal's records without locking it; skip torn and damaged lines."""
    if not path.is_file():
        return {}
    found: dict[str, JournalRecord] = {}
    for line in path.read_bytes().split(b"\n"):
        entry = _entry(line)
        if entry and "key" in entry:
            with suppress(TypeError):  # a file that others wrote may contain anything
                record = JournalRecord(**entry)
                found |= {record.key: record} if isinstance(record.outcome, dict) else {}
    return found


def _entry_of(record: JournalRecord) -> dict[str, Any]:
    entry = {"key": record.key, "asked": record.asked, "outcome": record.outcome}
    return entry | ({"failed": True} if record.failed else {})


def _line(entry: dict[str, Any]) -> bytes:
    text = json.dumps(entry, ensure_ascii=False).encode()
    return b"%08x %s\n" % (crc32(text), text)


def _entry(line: bytes) -> dict[str, Any] | None:
    """The record of a line, or None if the line is torn or damaged."""
    checksum, _, text = line.partition(b" ")
    if checksum != b"%08x" % crc32(text):
        return None
    try:
        entry = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) else None


def _write_all(file: int, data: bytes) -> None:
    while data:
        data = data[os.write(file, data) :]


class NullJournal:
    """A journal that keeps nothing, for programs that are never resumed."""

    def find(self, key: str) -> JournalRecord | None:
        """Return None: no phase is ever found."""

    def append(self, record: JournalRecord) -> None:
        """Drop the record."""
