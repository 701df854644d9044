"""Owns how a worker's figures are put together: what it counted, how it is, what it has sampled."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from msgspec.structs import replace

from windlass.core.job import Connections, Json
from windlass.observe.endpoint import Health
from windlass.observe.figures import Figures, Life, Process, page, written
from windlass.observe.meters import Meters
from windlass.runtime.board import Board
from windlass.runtime.usage import resident

_EVERY = 1.0
"""Seconds between two of the figures that a supervisor is shown."""


class Vitals:
    """What can be told of a worker by whoever is asked: the thread of its endpoint, or its heart.

    `gauges`, `life` and `lag` are asked for in those threads.
    """

    def __init__(
        self,
        meters: Meters,
        *,
        gauges: Callable[[], dict[str, float]],
        life: Callable[[], Life],
        lag: Callable[[], float],
        board: Board | None,
    ) -> None:
        self._meters = meters
        self._gauges = gauges
        self._life = life
        self._lag = lag
        self._board = board
        self._shown_at = 0.0
        self._sample: Json | None = None
        self._sampled_at = 0.0
        self.asked_at = time.monotonic()
        """When the store last answered a claim, or was asked for orders."""

    def asked(self) -> None:
        """Take notice that the store has answered."""
        self.asked_at = time.monotonic()

    def sampled(self, sample: Json, age: float) -> None:
        """Keep the cluster-wide figures, which are so many seconds old."""
        self._sampled_at = time.monotonic() - age
        self._sample = sample

    def figures(self) -> Figures:
        """Return what there is to tell."""
        return replace(
            self._meters.figures(),
            gauges={
                **self._gauges(),
                "windlass_cpu_seconds_total": round(time.process_time(), 3),
                "windlass_memory_bytes": float(resident(os.getpid())),
            },
            life=self._life(),
            sample=self._sample,
            sampled_at=self._sampled_at,
        )

    def show(self) -> None:
        """Leave them on the board, from time to time, if there is one."""
        now = time.monotonic()
        if self._board is not None and now - self._shown_at >= _EVERY:
            self._shown_at = now
            self._board.write(written(self.figures()))

    # -- for a worker that serves them itself --------------------------------------------------

    def page(self) -> str:
        """Write them for Prometheus."""
        return page({"1": self._process()}, now=time.monotonic())

    def health(self) -> Health:
        """Say whether the worker is alive and ready; who can ask this sees that the process is."""
        return Health(live=True, ready=self._process().is_ready(time.monotonic()))

    def _process(self) -> Process:
        figures = self.figures()
        return Process(figures, self._lag(), figures.life.beat_at)


def pool_gauges(connections: Connections | None) -> dict[str, float]:
    """Return how much of the store's pool is in use, if it has one."""
    if connections is None:
        return {}
    return {
        "windlass_pool_connections": connections.open,
        "windlass_pool_connections_in_use": connections.in_use,
        "windlass_pool_connections_limit": connections.limit,
    }
