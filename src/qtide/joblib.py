"""The joblib backend: loops of joblib, and of scikit-learn, on the nodes of a cluster.

Importing this module registers it: `joblib.parallel_config("qtide", cluster="slurm")`. Each
`Parallel` call is a session of its own, so nothing is held between two of them.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import joblib
from joblib._parallel_backends import AutoBatchingMixin, ParallelBackendBase

from qtide.core.errors import UsageError
from qtide.interfaces.sessions.session import Session, session
from qtide.runs.open_site import is_virtual
from qtide.runs.run_options import RunOptions

NAME = "qtide"


class QtideBackend(AutoBatchingMixin, ParallelBackendBase):  # type: ignore[misc]  # it has no types
    """Each batch of calls is one call of a session; the options are those of `qtide.session`."""

    supports_retrieve_callback = True
    supports_inner_max_num_threads = False
    default_n_jobs = -1

    def __init__(self, nesting_level: int | None = None, **options: Any) -> None:
        super().__init__(nesting_level=nesting_level)
        self._options = options
        self._session: Session | None = None
        self._nodes: int | None = None

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """Return the number of calls at a time: as requested, or as many as fit."""
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        if n_jobs is not None and n_jobs > 0:
            return n_jobs
        if self._nodes is None:
            with self._new_session() as opened:
                self._nodes = opened.at_once
        return max(1, self._nodes + 1 + (-1 if n_jobs is None else n_jobs))

    def configure(self, n_jobs: int = 1, parallel: Any = None, **_: Any) -> int:
        """Open the session of a `Parallel` call."""
        self.parallel = parallel
        if self._session is None:
            self._session = self._new_session().__enter__()
            self._nodes = self._session.at_once
        return self.effective_n_jobs(n_jobs)

    def submit(self, func: Any, callback: Callable[[Any], None] | None = None) -> Future[Any]:
        """Call a batch on a node."""
        assert self._session is not None
        func.__qualname__ = getattr(func.items[0][0], "__qualname__", "batch")
        future: Future[Any] = self._session.submit(func)
        if callback is not None:
            future.add_done_callback(callback)
        return future

    def retrieve_result_callback(self, out: Future[Any]) -> Any:
        """Return the results of a batch; raise what one of its calls raised."""
        return out.result()

    def terminate(self) -> None:
        """End the session of a `Parallel` call."""
        opened, self._session = self._session, None
        if opened is not None:
            opened.shutdown(cancel_futures=True)

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """Give everything back at once, without waiting for calls."""
        opened, self._session = self._session, None
        if opened is not None:
            opened.terminate_workers()
        if ensure_ready:
            self.configure(parallel=self.parallel)

    def _new_session(self) -> Session:
        if is_virtual(RunOptions("run", self._options, ("name",)).spec("")):
            raise UsageError(
                "joblib needs real time: choose a cluster other than simulated, such as local"
            )
        return session(**self._options)


joblib.register_parallel_backend(NAME, QtideBackend)
