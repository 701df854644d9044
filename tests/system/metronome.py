"""Owns a measure of time that slows down with the machine, to hold a failover to its bound.

A beat is a pause, a new connection and a commit: what a client needs that finds a server again. It
takes `BEAT` seconds on a quiet machine, and longer on a busy one, where everything else does too.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.postgres.server import Server
from tests.support.worker_processes import PATIENCE

BEAT = 0.1
"""Seconds that a beat takes at least."""
PAGE = Path(__file__).parents[2] / "docs/failover.md"


class Metronome:
    """Beats, at a server, from the moment at which it was promoted."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._enough = threading.Event()
        self._beats: list[float] = []
        self._failed: list[BaseException] = []

    def beat(self) -> None:
        """Beat until it is enough."""
        try:
            while not self._enough.wait(BEAT):
                with self._server.connection() as db:
                    db.execute("SELECT pg_current_xact_id()")
                self._beats.append(time.time())
        except BaseException as error:
            self._failed.append(error)

    def stop(self) -> None:
        """Let it be enough."""
        self._enough.set()

    def seconds_until(self, moment: float) -> float:
        """Return the least that passed until a moment, as far as the machine let anybody work."""
        assert not self._failed, self._failed
        return BEAT * sum(at < moment for at in self._beats)


@contextmanager
def beating(server: Server) -> Iterator[Metronome]:
    """Give a metronome that beats around a block."""
    metronome = Metronome(server)
    thread = threading.Thread(target=metronome.beat)
    thread.start()
    try:
        yield metronome
    finally:
        metronome.stop()
        thread.join(PATIENCE)
        assert not thread.is_alive()


def bound(row: str) -> float:
    """Return the seconds that the page allows a failover in one of its ways."""
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith(f"| {row} |")]
    assert len(lines) == 1, f"{PAGE.name} has {len(lines)} rows for {row!r}"
    found = re.search(r"\| (\d+) \|$", lines[0])
    assert found, lines[0]
    return float(found[1])
