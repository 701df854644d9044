"""Owns what a supervisor tells of its workers to who asks by HTTP: one endpoint for them all."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from weakref import WeakSet

from windlass.observe.endpoint import Access, Endpoint, Health
from windlass.observe.figures import Totals, page
from windlass.observe.meters import Meters
from windlass.runtime.ward import Ward
from windlass.settings import Settings

_STUCK = 10.0
"""Seconds after which a supervisor that does not look at its workers is not alive any more."""


def access_of(settings: Settings) -> Access | None:
    """Return where metrics are served, and to whom; None: nowhere."""
    if not settings.metrics_port:
        return None
    return Access(
        host=settings.metrics_host,
        port=settings.metrics_port,
        token=settings.metrics_token,
        insecure=settings.insecure,
    )


class Office:
    """Serves the figures of all wards, in a thread of its own.

    Processes are told apart by a number that the next one gets when the last has ended, so that
    there are no more names than processes.
    """

    def __init__(self, wards: Callable[[], Collection[Ward]]) -> None:
        self._wards = wards
        self._lock = threading.Lock()
        self._buried: WeakSet[Ward] = WeakSet()
        self.meters = Meters()
        """What is counted here of the wards' jobs and leases."""
        self._access: Access | None = None
        self._endpoint: Endpoint | None = None
        self._is_told = False
        self._gone = Totals()
        self._deaths = 0
        self._processes = 0
        self._numbers: dict[int, int] = {}
        self._looked_at = time.monotonic()
        self._began_at = round(time.time(), 3)
        self.crash_looping = False
        """Whether workers die as soon as they work."""

    @property
    def address(self) -> str:
        """Where it is; empty: nowhere."""
        return "" if self._endpoint is None else self._endpoint.address

    def open(self, settings: Settings) -> None:
        """Begin to serve, or, if the settings say something else by now, begin anew."""
        access = access_of(settings)
        if access != self._access:
            self.close()
            self._access = access
            if access is not None:
                self._endpoint = Endpoint(access, metrics=self._page, health=self._health)
                self._endpoint.start()
                self._is_told = False
        for ward in self._wards():
            ward.metrics = self.address

    def tell(self) -> None:
        """Log where it is, once it is worth knowing: a worker serves."""
        if self._endpoint is not None and not self._is_told:
            self._is_told = True
            self._endpoint.tell()

    def close(self) -> None:
        """Serve no more."""
        if self._endpoint is not None:
            self._endpoint.stop()
            self._endpoint = None

    def look(self, processes: int) -> None:
        """Take notice that the supervisor is alive, and of how many processes there shall be."""
        self._looked_at = time.monotonic()
        self._processes = processes

    def bury(self, ward: Ward, *, expected: bool) -> None:
        """Keep what a process has counted that is gone."""
        with self._lock:  # Else somebody could see its counts twice, or not at all.
            self._gone.add(ward.figures())
            self._buried.add(ward)
            self._numbers.pop(ward.pid, None)
            self._deaths += not expected

    def _number(self, ward: Ward) -> str:
        if ward.pid not in self._numbers:
            taken = set(self._numbers.values())
            self._numbers[ward.pid] = next(n for n in range(1, len(taken) + 2) if n not in taken)
        return str(self._numbers[ward.pid])

    def _page(self) -> str:
        with self._lock:
            wards = [ward for ward in list(self._wards()) if ward not in self._buried]
            processes = {self._number(ward): ward.as_process() for ward in wards}
            gone = self._gone.copy()
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
        now, wards = time.monotonic(), list(self._wards())
        ready = [ward.as_process().is_ready(now) for ward in wards if not ward.leaving]
        return Health(live=now - self._looked_at < _STUCK, ready=any(ready))
