"""Values that pass between program, nodes and journal: pickled, with large buffers in files.

Large arrays never pass through a pipe and are never stored twice in the run's folder: each large
buffer is a file named by its content.
"""

from __future__ import annotations

import pickle
import sys
from base64 import b64decode, b64encode
from collections.abc import Callable
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from pickle import PickleBuffer
from types import FunctionType, MethodType
from typing import Any, NamedTuple

import cloudpickle

from qtide.core.errors import QtideError

LARGE = 1 << 16  # bytes, a pipe's own buffer: smaller values travel faster inline


class Unstorable(TypeError):  # noqa: N818 - reads as what the value is
    """A value that cannot be pickled."""


class Packed(NamedTuple):
    """A value as bytes and the names of the files that hold its large buffers."""

    data: bytes = b""
    file: str = ""
    buffers: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Convert to the form of a journal record."""
        data = {"file": self.file} if self.file else {"data": b64encode(self.data).decode()}
        return data | ({"buffers": list(self.buffers)} if self.buffers else {})

    @staticmethod
    def from_json(entry: dict[str, Any]) -> Packed:
        """Read from a journal record."""
        data = b64decode(entry.get("data", ""))
        return Packed(data, entry.get("file", ""), tuple(entry.get("buffers", ())))


class Values:
    """A run's folder of large values."""

    large = LARGE
    """Minimum size in bytes for which a value gets its own file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def pack(self, value: Any, *, by_value: bool = False) -> Packed:
        """Pickle; with `by_value`, functions that cannot be imported elsewhere travel as code."""
        if isinstance(value, BaseException) and value.__cause__ is not None:
            with suppress(Unstorable):  # the cause may be unstorable
                return self.pack(CausedError(value), by_value=by_value)
        buffers: list[str] = []

        def keep(buffer: pickle.PickleBuffer) -> bool:
            raw = buffer.raw()
            if raw.nbytes < self.large:
                return True
            buffers.append(self._store(raw))
            return False

        data = _dumps(value, keep, by_value=by_value)
        if len(data) < self.large:
            return Packed(data, buffers=tuple(buffers))
        return Packed(file=self._store(memoryview(data)), buffers=tuple(buffers))

    def unpack(self, packed: Packed) -> Any:
        """Restore a value; its arrays are writable copies."""
        data = (self.folder / packed.file).read_bytes() if packed.file else packed.data
        # bytearray, because an array backed by bytes would be read-only
        buffers = [bytearray((self.folder / name).read_bytes()) for name in packed.buffers]
        return pickle.loads(data, buffers=buffers)

    def _store(self, raw: memoryview) -> str:
        """Write a buffer once, durably, named by its content: a journal may soon rely on it."""
        from hashlib import blake2b  # imported here so that an agent starts faster

        from qtide.core.files import write_whole

        name = blake2b(raw, digest_size=16).hexdigest()
        if not (self.folder / name).exists():
            try:
                # others never write into it, whatever the umask
                self.folder.mkdir(mode=0o755, parents=True, exist_ok=True)
                write_whole(self.folder / name, raw)
            except OSError as error:
                raise QtideError(
                    f"a value of {raw.nbytes:,} bytes cannot be written to {self.folder} "
                    f"({error.strerror}); make room, then resume the run"
                ) from None
        return name


class Inline(Values):
    """Values without a folder: packed inline, whatever their size."""

    large = sys.maxsize

    def __init__(self) -> None:
        super().__init__(Path())


def _dumps(value: Any, keep: Callable[[pickle.PickleBuffer], bool], *, by_value: bool) -> bytes:
    """Use plain pickle if possible; cloudpickle for code and what plain pickle cannot handle."""
    if not by_value:
        try:
            return pickle.dumps(value, protocol=5, buffer_callback=keep)
        except QtideError:
            raise
        except Exception:
            return _dumps(value, keep, by_value=True)

    try:
        return dumps(value, keep)
    except QtideError:
        raise
    except Exception as error:
        raise Unstorable(f"{_shown(value)} cannot be pickled: {error}") from None


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 80 else f"{text[:77]}…"


def dumps(value: Any, keep: Callable[[PickleBuffer], bool] | None = None) -> bytes:
    """Pickle a value with cloudpickle; buffers are offered to `keep`."""
    written = BytesIO()
    Pickler(written, protocol=5, buffer_callback=keep).dump(value)
    return written.getvalue()


class CausedError:
    """An exception pickled together with its cause, which pickle alone would drop."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __reduce__(self) -> tuple[Any, ...]:
        cause = self._error.__cause__
        return _caused, (self._error, None if cause is None else CausedError(cause))


def _caused(error: BaseException, cause: BaseException | None) -> BaseException:
    if cause is not None:
        error.__cause__ = cause
    return error


def _method(method: MethodType) -> tuple[Any, ...]:
    """Pickle a compiled class's method by name, as it has no code that could travel.

    dimod's models are rebuilt by such a method, and could otherwise not be arguments of a task.
    """
    if isinstance(method.__func__, FunctionType):
        return MethodType, (method.__func__, method.__self__)
    return getattr, (method.__self__, method.__func__.__name__)


class Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # it has no types
    """cloudpickle's pickler, which alone mistakes compiled functions for Python functions."""

    dispatch_table = cloudpickle.Pickler.dispatch_table.new_child({MethodType: _method})


class NullValues(Values):
    """Packs nothing, for programs without a journal."""

    def __init__(self) -> None:
        super().__init__(Path("/nonexistent"))

    def pack(self, value: Any, *, by_value: bool = False) -> Packed:
        """Pack nothing."""
        return Packed()
