"""Owns one worker's process from the supervisor's side: its messages, signals and end."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import time
from collections.abc import Sequence
from uuid import UUID

from windlass.core.jobs.job import Job
from windlass.core.workers import WorkerPulse
from windlass.observability.meters import Meters
from windlass.observability.process_stats import Figures, Process, read
from windlass.process.exits.begun_jobs import BegunJobs
from windlass.process.exits.black_box import BlackBox
from windlass.process.stats_board import StatsBoard
from windlass.process.supervisor_channel import (
    ASK_FOR_STACK,
    Beat,
    Begin,
    Message,
    Stopping,
    channel_end,
)
from windlass.settings import Settings
from windlass.store import Store
from windlass.supervisor.spawn import Spawned


class WorkerProcess:
    """A process with one worker in it."""

    settings: Settings | None = None
    store: Store | None = None
    """The store of its lease; None if that does not follow from its settings."""
    location = ""
    """Where its jobs are, as the worker reports it."""
    patience: float | None = None
    worker = ""
    """The id of its lease, while it has one."""
    known_as = ""
    """The id of the last lease that it had."""
    keeping: asyncio.Task[None] | None = None
    metrics = ""
    """The address at which its figures are served."""
    leaving = ""
    """Why it is asked to end, or is about to; empty if it is not."""
    finished = False
    """Whether it ends because no job is left."""
    is_stopped = False
    """Whether a signal has stopped it; then its lease must not be renewed."""
    code: int | None = None

    def __init__(self, spawned: Spawned) -> None:
        self._process = spawned.process
        self.pid = spawned.process.pid
        self.began = spawned.began
        self._stacks = spawned.stacks
        self._box = BlackBox(spawned.box)
        self._board = StatsBoard(spawned.board)
        self._begun_jobs = BegunJobs(spawned.begun_jobs)
        spawned.is_taken = True
        self.channel = channel_end(spawned.channel)
        self.channel.offer(Begin())
        self.ready = asyncio.Event()
        self.beating = asyncio.Event()
        """Set at its first beat."""
        self.ended = asyncio.Event()
        self.renewed_at = self.began
        """When its lease was last renewed by the supervisor."""
        self.meters = Meters()
        """Counts its jobs and its lease as the supervisor sees them."""
        self._figures = Figures()
        self.pulse = WorkerPulse()
        self.leaving_since = math.inf
        self.stuck_since = math.inf
        self._killed = False
        self._heard_at = time.monotonic()
        self._lag = 0.0
        self.stalled = False

    @property
    def lag(self) -> float:
        """Seconds for which its loop has not moved, as far as is known."""
        return self._lag + max(time.monotonic() - self._heard_at - 1.0, 0.0)

    @property
    def is_mute(self) -> bool:
        """Whether not even its heartbeat thread runs: something holds the interpreter's lock."""
        return time.monotonic() - self._heard_at > 1.0

    def receive(self) -> list[Message] | None:
        """Return its messages, and record that it lives; None if no more will come."""
        messages = self.channel.receive()
        if messages:
            self._heard_at = time.monotonic()
        for message in messages or ():
            if isinstance(message, Beat):
                self.pulse, self._lag = message.pulse, message.lag
                self.beating.set()
        return messages

    def signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.code is None:
            os.kill(self.pid, number)

    def leave(self, why: str) -> None:
        """Record that it is to end, and why."""
        if not self.leaving and self.code is None:
            self.leaving, self.leaving_since = why, time.monotonic()

    def drain(self, why: str) -> None:
        """Ask it to finish its jobs and to end, unless it is already leaving."""
        self.channel.offer(Stopping())
        if not self.leaving:
            self.leave(why)
            self.signal(signal.SIGTERM)

    def hurry(self) -> None:
        """Ask it to give back its jobs at once, and to end."""
        self.channel.offer(Stopping())
        self.leave("shutdown")
        self.signal(signal.SIGQUIT)

    def kill(self) -> None:
        """Kill it."""
        self._killed = True
        self.signal(signal.SIGKILL)

    @property
    def was_let_go(self) -> bool:
        """Whether it ended because it was asked to, and not because of a job."""
        ours = self._killed or (self.code or 0) >= 0 or self.code == -signal.SIGTERM
        return bool(self.leaving) and ours

    @property
    def why(self) -> str:
        """Why it ended, as far as its supervisor knows."""
        if self.leaving:
            return self.leaving
        if self._killed:
            return "its event loop was blocked, so it was killed"
        if self.ready.is_set():
            return "unexpected exit"
        if self.known_as:
            return "it could not start: it had registered, and was not ready to serve"
        return "it could not start: it ended before it had registered"

    def gone(self, code: int) -> None:
        """Record how it ended, and close the channel."""
        self.code = self._process.returncode = code
        self.channel.close()
        self.ended.set()

    async def stack(self) -> str:
        """Return its stack, if it can still write it."""
        if ASK_FOR_STACK is None:
            return ""
        here = os.fstat(self._stacks).st_size
        self.signal(ASK_FOR_STACK)
        await asyncio.sleep(0.2)
        if self._stacks < 0:
            return ""
        return os.pread(self._stacks, 16_384, here).decode(errors="replace")

    def figures(self) -> Figures:
        """Return the figures that it has written last."""
        data = self._board.read()
        figures = None if data is None else read(data)
        self._figures = self._figures if figures is None else figures
        return self._figures

    def as_process(self) -> Process:
        """Return its state as far as it is known, whether it still runs or not."""
        figures = self.figures()
        return Process(figures, self.lag, max(figures.life.beat_at, self.renewed_at))

    def last_words(self, job: Job) -> str:
        """Return the last lines that it logged about a job, and its crash dump."""
        return self._box.read(str(job.id))

    def begun(self, held: Sequence[Job]) -> set[UUID]:
        """Return which of the jobs that it held had begun there: all, if that is not known."""
        return self._begun_jobs.among(held)

    def close(self) -> None:
        """Close the files that were shared with it."""
        os.close(self._stacks)
        self._stacks = -1
        self._box.close()
        self._board.close()
        self._begun_jobs.close()
