"""Owns the supervisor's HTTP endpoint: metrics and health of all its workers."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from weakref import WeakSet

from windlass.observability.http_endpoint import Access, Endpoint, Health
from windlass.observability.meters import Meters
from windlass.observability.process_stats import Totals, page
from windlass.settings import Settings
from windlass.supervisor.worker_process import WorkerProcess

_STUCK_SECONDS = 10.0
"""Seconds after which a supervisor that does not look at its workers counts as dead."""


def access_of(settings: Settings) -> Access | None:
    """Return where metrics are served, and to whom; None if nowhere."""
    if not settings.metrics_port:
        return None
    return Access(
        host=settings.metrics_host,
        port=settings.metrics_port,
        token=settings.metrics_token,
        insecure=settings.insecure,
    )


class MetricsServer:
    """Serves the figures of all workers, in a thread of its own.

    Processes are labelled with a number that is reused when a process has ended, so that there are
    no more labels than processes.
    """

    def __init__(self, workers: Mapping[int, WorkerProcess]) -> None:
        self._workers = workers
        self._lock = threading.Lock()
        self._ended: WeakSet[WorkerProcess] = WeakSet()
        self.meters = Meters()
        """Counts the workers' jobs and leases as the supervisor sees them."""
        self._access: Access | None = None
        self._endpoint: Endpoint | None = None
        self._is_announced = False
        self._ended_totals = Totals()
        self._deaths = 0
        self._processes = 0
        self._numbers: dict[int, int] = {}
        self._checked_at = time.monotonic()
        self._began_at = round(time.time(), 3)
        self.crash_looping = False
        """Whether workers die soon after they have started to serve."""

    @property
    def address(self) -> str:
        """The address of the endpoint; empty if there is none."""
        return "" if self._endpoint is None else self._endpoint.address

    def open(self, settings: Settings) -> None:
        """Start to serve, or start again if the settings have changed."""
        access = access_of(settings)
        if access != self._access:
            self.close()
            self._access = access
            if access is not None:
                self._endpoint = Endpoint(access, metrics=self._page, health=self._health)
                self._endpoint.start()
                self._is_announced = False
        for process in self._workers.values():
            process.metrics = self.address

    def announce(self) -> None:
        """Log the address, once a worker serves."""
        if self._endpoint is not None and not self._is_announced:
            self._is_announced = True
            self._endpoint.tell()

    def close(self) -> None:
        if self._endpoint is not None:
            self._endpoint.stop()
            self._endpoint = None

    def observe(self, processes: int) -> None:
        """Record that the supervisor is alive, and how many processes it wants."""
        self._checked_at = time.monotonic()
        self._processes = processes

    def add_ended(self, process: WorkerProcess, *, expected: bool) -> None:
        """Keep the counts of a process that has ended."""
        with self._lock:  # Otherwise a reader could see its counts twice, or not at all.
            self._ended_totals.add(process.figures())
            self._ended.add(process)
            self._numbers.pop(process.pid, None)
            self._deaths += not expected

    def _number(self, process: WorkerProcess) -> str:
        if process.pid not in self._numbers:
            taken = set(self._numbers.values())
            self._numbers[process.pid] = next(n for n in range(1, len(taken) + 2) if n not in taken)
        return str(self._numbers[process.pid])

    def _page(self) -> str:
        with self._lock:
            workers = list(self._workers.values())
            running = [worker for worker in workers if worker not in self._ended]
            processes = {self._number(worker): worker.as_process() for worker in running}
            gone = self._ended_totals.copy()
        return page(
            processes,
            now=time.monotonic(),
            others=[self.meters.figures()],
            gone=gone,
            supervisor={
                "windlass_processes": self._processes,
                "windlass_process_deaths_total": self._deaths,
                "windlass_crash_looping": float(self.crash_looping),
                "windlass_start_time_seconds": self._began_at,
            },
        )

    def _health(self) -> Health:
        now, processes = time.monotonic(), list(self._workers.values())
        ready = [process.as_process().is_ready(now) for process in processes if not process.leaving]
        return Health(live=now - self._checked_at < _STUCK_SECONDS, ready=any(ready))
