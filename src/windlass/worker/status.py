"""Owns what a worker reports about itself: its pulse, its metrics and its health."""

from __future__ import annotations

import asyncio
import os
import time
from datetime import timedelta
from typing import TYPE_CHECKING

from msgspec.structs import replace

from windlass.core.stats.depths import Connections
from windlass.core.workers import WorkerPulse
from windlass.observability.http_endpoint import Endpoint, Health
from windlass.observability.logs import get_logger
from windlass.observability.meters import Meters
from windlass.observability.process_stats import Figures, Life, Process, page, written
from windlass.process.clocks import ClockGauge
from windlass.process.exits.memory import memory_limit, resident
from windlass.process.gauges import CpuGauge
from windlass.process.stats_board import StatsBoard
from windlass.store import Store
from windlass.worker.engine.engine import Engine
from windlass.worker.options import WorkerOptions
from windlass.worker.services.operator_requests import OperatorRequests
from windlass.worker.state import WorkerState

if TYPE_CHECKING:
    from windlass.worker.heartbeat import Heartbeat

log = get_logger("windlass.worker")
_BOARD_SECONDS = 1.0
"""Seconds between two writes of the metrics to the supervisor's board."""


class WorkerStatus:
    """Reports on a worker, from any thread: to its supervisor, the store and its own endpoint.

    `attach` names the parts that it reports on; nothing is asked before that.
    """

    _engine: Engine
    _heartbeat: Heartbeat
    _requests: OperatorRequests

    def __init__(
        self,
        store: Store,
        state: WorkerState,
        options: WorkerOptions,
        meters: Meters,
        clock: ClockGauge,
    ) -> None:
        self._store = store
        self._state = state
        self._options = options
        self._meters = meters
        self._clock = clock
        self._cpu = CpuGauge()
        self._endpoint: Endpoint | None = None
        self._shown_at = 0.0
        self._is_cut = False
        self._began_at = round(time.time(), 3)

    def attach(self, engine: Engine, heartbeat: Heartbeat, requests: OperatorRequests) -> None:
        """Take the parts of a worker to report on."""
        self._engine, self._heartbeat, self._requests = engine, heartbeat, requests

    def renew(self, worker: str, pulse: WorkerPulse, timeout: timedelta) -> bool:
        """Renew the lease from the heartbeat's thread, and measure how long that takes."""
        began = time.monotonic()
        try:
            alive = self._store.heartbeat(worker, pulse, timeout)
        except Exception:
            self._meters.call_failed("heartbeat")
            raise
        self._state.renewed_at = time.monotonic()
        self._meters.called("heartbeat", self._state.renewed_at - began)
        return alive

    def pulse(self) -> WorkerPulse:
        """Return the state of the worker, as a heartbeat stores it for others to see."""
        state, runs = self._state, self._state.runs
        running = self._running()
        busy = max(
            running / self._options.concurrency.most, runs.in_threads / self._options.threads
        )
        return WorkerPulse(
            state="draining" if state.draining else "running",
            processed=state.processed,
            running=running,
            slots=state.slots,
            busy=round(busy, 3),
            in_threads=runs.in_threads,
            in_isolated_processes=runs.in_isolated_processes,
            waiting=self._engine.demand.waiting,
            cpu=round(self._cpu.read(), 3),
            fenced=state.fenced,
            listening=self._store.listening,
            metrics=self.address,
            clock_ahead=self._clock.ahead,
            memory=resident(os.getpid()) or None,
            pool=self._store.connections,
        )

    def figures(self) -> Figures:
        """Return the worker's metrics."""
        return replace(
            self._meters.figures(),
            gauges={
                **self._gauges(),
                "windlass_cpu_seconds_total": round(time.process_time(), 3),
                "windlass_loop_late_seconds_total": round(self._heartbeat.late, 3),
                "windlass_memory_bytes": float(resident(os.getpid())),
                **_memory_limit(),
            },
            life=self._life(),
            sample=self._state.sample,
            sampled_at=self._state.sampled_at,
        )

    def _life(self) -> Life:
        channel = self._state.channel
        renewed_at = 0.0 if channel is None else channel.renewed_at
        return Life(
            serves=self._state.serves,
            beat_at=max(self._state.renewed_at, renewed_at),
            asked_at=self._state.store_answered_at,
            lease=self._options.lease.total_seconds(),
        )

    def _running(self) -> int:
        """Return how many jobs have a slot: those that were claimed ahead have none yet."""
        return len(self._state.runs) - self._engine.tasks.ahead

    def _gauges(self) -> dict[str, float]:
        runs, listening = self._state.runs, self._requests.listening
        return {
            "windlass_jobs_in_flight": self._running(),
            "windlass_slots": self._state.slots,
            "windlass_threads": self._options.threads,
            "windlass_threads_in_use": runs.in_threads,
            "windlass_isolated_processes": self._options.isolated_processes,
            "windlass_isolated_processes_in_use": runs.in_isolated_processes,
            **({} if listening is None else {"windlass_listening": float(listening)}),
            **_pool_gauges(self._store.connections),
        }

    def show(self) -> None:
        """Write the metrics to the supervisor's board, once a second, if there is one."""
        channel, now = self._state.channel, time.monotonic()
        board = None if channel is None else channel.board
        if board is not None and now - self._shown_at >= _BOARD_SECONDS:
            self._shown_at = now
            if not leave(board, self.figures()) and not self._is_cut:
                self._is_cut = True
                log.warning("figures.cut", why="the names of queues and kinds are too long")

    @property
    def address(self) -> str:
        """Where the metrics are served; empty: nowhere, or by the supervisor."""
        return "" if self._endpoint is None else self._endpoint.address

    def serve(self) -> None:
        """Begin to serve the metrics, if the options say so."""
        if self._options.metrics is not None:
            self._endpoint = Endpoint(self._options.metrics, metrics=self.page, health=self.health)
            self._endpoint.start()
            self._endpoint.tell()

    async def close(self) -> None:
        """Close the endpoint."""
        if self._endpoint is not None:
            await asyncio.to_thread(self._endpoint.stop)

    def page(self) -> str:
        """Return the metrics as Prometheus reads them."""
        return page(
            {"1": self._process()},
            now=time.monotonic(),
            supervisor={"windlass_start_time_seconds": self._began_at},
        )

    def health(self) -> Health:
        """Return whether the worker is ready; it is live if it can answer at all."""
        return Health(live=True, ready=self._process().is_ready(time.monotonic()))

    def _process(self) -> Process:
        figures = self.figures()
        return Process(figures, self._heartbeat.lag, figures.life.beat_at)


def leave(board: StatsBoard, figures: Figures) -> bool:
    """Write figures to a board; return False if only signs of life and gauges fit.

    Without those the supervisor would take the process for stuck.
    """
    if board.write(written(figures)):
        return True
    board.write(written(replace(figures, counts={}, histograms={}, sample=None)))
    return False


def _pool_gauges(connections: Connections | None) -> dict[str, float]:
    if connections is None:
        return {}
    return {
        "windlass_pool_connections": connections.open,
        "windlass_pool_connections_in_use": connections.in_use,
        "windlass_pool_connections_limit": connections.limit,
    }


def _memory_limit() -> dict[str, float]:
    limit = memory_limit()
    return {} if limit is None else {"windlass_memory_limit_bytes": float(limit)}
