"""Owns how a worker's figures are put together: what it counted, how it is, what it has sampled."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from datetime import timedelta

from msgspec.structs import replace

from windlass.core.job import Connections, Json, Pulse
from windlass.observe.endpoint import Endpoint, Health
from windlass.observe.figures import Figures, Life, Process, page, written
from windlass.observe.logs import get_logger
from windlass.observe.meters import Meters
from windlass.runtime.board import Board
from windlass.runtime.heart import Heart
from windlass.runtime.leash import Leash
from windlass.runtime.options import WorkerOptions
from windlass.runtime.usage import resident
from windlass.runtime.works import Works
from windlass.store import Store

log = get_logger("windlass.worker")
_EVERY = 1.0
"""Seconds between two of the figures that a supervisor is shown."""


class Vitals:
    """What can be told of a worker by whoever is asked: the thread of its endpoint, or its heart.

    `attach` names the parts that it is told of; before that nobody asks.
    """

    def __init__(
        self, store: Store, options: WorkerOptions, meters: Meters, leash: Leash | None
    ) -> None:
        self._store = store
        self._options = options
        self._meters = meters
        self._leash = leash
        self._works: Works
        self._heart: Heart
        self._listening: Callable[[], bool | None]
        self._slots: Callable[[], int]
        self._endpoint: Endpoint | None = None
        self._shown_at = 0.0
        self._is_cut = False
        self._renewed_at = 0.0
        self.sample: Json | None = None
        """The cluster-wide figures, as they were read last."""
        self._sampled_at = 0.0
        self._asked_at = time.monotonic()
        self._began_at = round(time.time(), 3)

    def attach(
        self,
        works: Works,
        heart: Heart,
        *,
        slots: Callable[[], int],
        listening: Callable[[], bool | None],
    ) -> None:
        """Take the parts of a worker that are to be told of."""
        self._works, self._heart = works, heart
        self._slots, self._listening = slots, listening

    # -- what it is told -----------------------------------------------------------------------

    def asked(self) -> None:
        """Take notice that the store has answered."""
        self._asked_at = time.monotonic()

    def sampled(self, sample: Json, age: float) -> None:
        """Keep the cluster-wide figures, which are so many seconds old."""
        self._sampled_at = time.monotonic() - age
        self.sample = sample

    def registered(self) -> None:
        """Take notice of a new lease."""
        self._renewed_at = time.monotonic()

    def renew(self, worker: str, pulse: Pulse, timeout: timedelta) -> bool:
        """Renew the lease from the heart's thread, and measure how long that takes."""
        began = time.monotonic()
        try:
            alive = self._store.heartbeat(worker, pulse, timeout)
        except Exception:
            self._meters.call_failed("heartbeat")
            raise
        self._renewed_at = time.monotonic()
        self._meters.called("heartbeat", self._renewed_at - began)
        return alive

    # -- what it tells -------------------------------------------------------------------------

    def figures(self) -> Figures:
        """Return what there is to tell."""
        return replace(
            self._meters.figures(),
            gauges={
                **self._gauges(),
                "windlass_cpu_seconds_total": round(time.process_time(), 3),
                "windlass_loop_late_seconds_total": round(self._heart.late, 3),
                "windlass_memory_bytes": float(resident(os.getpid())),
            },
            life=self._life(),
            sample=self.sample,
            sampled_at=self._sampled_at,
        )

    def _life(self) -> Life:
        held = 0.0 if self._leash is None else self._leash.renewed_at
        return Life(
            serves=self._works.serves,
            beat_at=max(self._renewed_at, held),
            asked_at=self._asked_at,
            lease=self._options.lease.total_seconds(),
        )

    def _gauges(self) -> dict[str, float]:
        executor, listening = self._works.executor, self._listening()
        return {
            "windlass_jobs_in_flight": len(executor.runs),
            "windlass_slots": self._slots(),
            "windlass_threads": self._options.threads,
            "windlass_threads_in_use": executor.in_threads,
            "windlass_children": self._options.children,
            "windlass_children_in_use": executor.in_children,
            **({} if listening is None else {"windlass_listening": float(listening)}),
            **_pool_gauges(self._store.connections),
        }

    def show(self) -> None:
        """Leave them on the supervisor's board, from time to time, if there is one."""
        now, board = time.monotonic(), None if self._leash is None else self._leash.board
        if board is not None and now - self._shown_at >= _EVERY:
            self._shown_at = now
            if not leave(board, self.figures()) and not self._is_cut:
                self._is_cut = True
                log.warning("figures.cut", why="the names of queues and kinds are too long")

    # -- for a worker that serves them itself --------------------------------------------------

    @property
    def address(self) -> str:
        """Where they are served; empty: nowhere, or by the supervisor."""
        return "" if self._endpoint is None else self._endpoint.address

    def serve(self) -> None:
        """Begin to serve them, if that was asked for."""
        if self._options.metrics is not None:
            self._endpoint = Endpoint(self._options.metrics, metrics=self.page, health=self.health)
            self._endpoint.start()
            self._endpoint.tell()

    async def close(self) -> None:
        """Serve them no more."""
        if self._endpoint is not None:
            await asyncio.to_thread(self._endpoint.stop)

    def page(self) -> str:
        """Write them for Prometheus."""
        return page(
            {"1": self._process()},
            now=time.monotonic(),
            supervisor={"windlass_start_time_seconds": self._began_at},
        )

    def health(self) -> Health:
        """Say whether the worker is alive and ready; who can ask this sees that the process is."""
        return Health(live=True, ready=self._process().is_ready(time.monotonic()))

    def _process(self) -> Process:
        figures = self.figures()
        return Process(figures, self._heart.lag, figures.life.beat_at)


def leave(board: Board, figures: Figures) -> bool:
    """Leave figures on a board; if they are too many, signs of life and gauges alone, and False.

    Without those the supervisor would take the process for one that is stuck.
    """
    if board.write(written(figures)):
        return True
    board.write(written(replace(figures, counts={}, histograms={}, sample=None)))
    return False


def _pool_gauges(connections: Connections | None) -> dict[str, float]:
    """Return how much of the store's pool is in use, if it has one."""
    if connections is None:
        return {}
    return {
        "windlass_pool_connections": connections.open,
        "windlass_pool_connections_in_use": connections.in_use,
        "windlass_pool_connections_limit": connections.limit,
    }
