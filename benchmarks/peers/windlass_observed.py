"""Owns Windlass under observation as a contender: counted, logged, scraped; and all but that."""

from __future__ import annotations

import asyncio
import logging
import urllib.request
from collections.abc import Sequence
from typing import Any, ClassVar

from benchmarks.peers.windlass_postgres import WindlassPostgres
from windlass import Job, Meters, configure_logging
from windlass.core.jobs.settle import Transition

_PORT = 24_500


class Mute(Meters):
    """Counts nothing."""

    def claimed(self, jobs: Sequence[Job], seconds: float) -> None:
        """Leave it."""

    def ran(self, job: Job, seconds: float) -> None:
        """Leave it."""

    def settled(self, job: Job, move: Transition) -> None:
        """Leave it."""

    def called(self, call: str, seconds: float, jobs: int | None = None) -> None:
        """Leave it."""


class WindlassUnobserved(WindlassPostgres):
    """Neither counts nor logs what goes well."""

    name: ClassVar[str] = "Windlass, unobserved"
    options: ClassVar[dict[str, Any]] = WindlassPostgres.options | {"meters": Mute}


class WindlassMeasured(WindlassPostgres):
    """Counts everything, and is scraped every second."""

    name: ClassVar[str] = "Windlass, measured"
    options: ClassVar[dict[str, Any]] = WindlassPostgres.options | {"metrics_port": _PORT}

    async def work(self, slots: int | None, *, idle: bool) -> None:
        """Serve as a worker until cancelled."""
        scraping = asyncio.create_task(self._scrape())
        try:
            await super().work(slots, idle=idle)
        finally:
            scraping.cancel()

    async def _scrape(self) -> None:
        while True:
            await asyncio.sleep(1)
            await asyncio.to_thread(_read, f"http://127.0.0.1:{_PORT}/metrics")


class WindlassObserved(WindlassMeasured):
    """The same, and logs to a file: a line for the start and the end of every run, as JSON."""

    name: ClassVar[str] = "Windlass, observed"

    async def work(self, slots: int | None, *, idle: bool) -> None:
        """Serve as a worker until cancelled; the standard error of these processes is a file."""
        logging.disable(logging.NOTSET)
        configure_logging("info", "json")
        await super().work(slots, idle=idle)


def _read(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=5) as answer:
        data: bytes = answer.read()
    return data
