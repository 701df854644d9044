"""Owns one worker's process as its supervisor sees it: started, listened to, signalled, ended."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence

from windlass.core.job import Job, Pulse
from windlass.observe.figures import Figures, Process, read
from windlass.observe.meters import Meters
from windlass.runtime import leash
from windlass.runtime.blackbox import BlackBox, shared_file
from windlass.runtime.board import Board
from windlass.settings import Settings
from windlass.store import Store


class Ward:
    """A process with one worker in it."""

    def __init__(self, command: Sequence[str], number: int) -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        self._stacks = shared_file()
        self.number = number
        self.leash = leash.End(ours)
        self.began = time.monotonic()
        self._box = BlackBox.create()
        self._board = Board.create()
        shared = [theirs.fileno(), self._stacks, self._box.fd, self._board.fd]
        try:
            # In a group of its own: a terminal's Ctrl-C reaches us alone, and we pass it on once.
            self._process = subprocess.Popen(  # noqa: S603 - it is ourselves.
                [sys.executable, "-m", "windlass", *command],
                env=os.environ | {leash.VARIABLE: ",".join(map(str, shared))},
                stdin=subprocess.DEVNULL,
                pass_fds=shared,
                process_group=0,
            )
        except OSError:
            self.leash.close()
            self.close()
            raise
        finally:
            theirs.close()
        self.pid = self._process.pid
        self.ready = asyncio.Event()
        self.beating = asyncio.Event()
        """Whether it has said how it is, for the first time."""
        self.ended = asyncio.Event()
        self.settings: Settings | None = None
        self.store: Store | None = None
        """Where it has its lease; None if that cannot be told from its settings."""
        self.patience: float | None = None
        self.worker = ""
        """The id of its lease, while it has one."""
        self.known_as = ""
        """The id of the last lease that it had."""
        self.keeping: asyncio.Task[None] | None = None
        self.metrics = ""
        """Where its figures are served."""
        self.renewed_at = self.began
        """When its lease was last renewed from here."""
        self.meters = Meters()
        """What is counted here of its jobs and its lease."""
        self._figures = Figures()
        self.pulse = Pulse()
        self.leaving = ""
        """Why it is to end, or is about to, if somebody wants that."""
        self.finished = False
        """Whether it ends because there is nothing left to do."""
        self.is_stopped = False
        """Whether somebody has stopped it with a signal; then nobody may renew its lease."""
        self.code: int | None = None
        self.leaving_since = math.inf
        self.stuck_since = math.inf
        self._killed = False
        self._heard_at = time.monotonic()
        self._lag = 0.0
        self.stalled = False

    @property
    def lag(self) -> float:
        """For how many seconds its loop has not moved, as far as is known."""
        return self._lag + max(time.monotonic() - self._heard_at - 1.0, 0.0)

    @property
    def is_mute(self) -> bool:
        """Whether not even its heart's thread runs: something holds the interpreter's lock."""
        return time.monotonic() - self._heard_at > 1.0

    def hear(self) -> list[leash.Word] | None:
        """Return what it says, and note that it lives; None if it will say nothing more."""
        words = self.leash.hear()
        if words:
            self._heard_at = time.monotonic()
        for word in words or ():
            if isinstance(word, leash.Beat):
                self.pulse, self._lag = word.pulse, word.lag
                self.beating.set()
        return words

    def send(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.code is None:
            os.kill(self.pid, number)

    def leave(self, why: str) -> None:
        """Note that it is to end, and why."""
        if not self.leaving and self.code is None:
            self.leaving, self.leaving_since = why, time.monotonic()

    def drain(self, why: str) -> None:
        """Ask it to finish what runs, and to end; whoever drains already is left to it."""
        if not self.leaving:
            self.leave(why)
            self.send(signal.SIGTERM)

    def hurry(self) -> None:
        """Ask it to give back at once what runs, and to end."""
        self.leave("shutdown")
        self.send(signal.SIGQUIT)

    def kill(self) -> None:
        """End it, whatever it does."""
        self._killed = True
        self.send(signal.SIGKILL)

    @property
    def was_let_go(self) -> bool:
        """Whether it ended because somebody wanted that, and not of something that it ran."""
        ours = self._killed or (self.code or 0) >= 0 or self.code == -signal.SIGTERM
        return bool(self.leaving) and ours

    @property
    def why(self) -> str:
        """Why it ended, as far as its supervisor knows."""
        if self.leaving:
            return self.leaving
        if self._killed:
            return "its loop stood still, and it was killed"
        if self.ready.is_set():
            return "nobody told it to"
        if self.known_as:
            return "it could not start: it had registered, and was not ready to serve"
        return "it could not start: it ended before it had registered"

    def gone(self, code: int) -> None:
        """Note how it ended, and let go of what was shared with it."""
        self.code = self._process.returncode = code
        self.leash.close()
        self.ended.set()

    async def stack(self) -> str:
        """Return where it stands, as far as it can still be made to say so."""
        if leash.ASK_FOR_STACK is None:
            return ""
        here = os.fstat(self._stacks).st_size
        self.send(leash.ASK_FOR_STACK)
        await asyncio.sleep(0.2)
        if self._stacks < 0:
            return ""
        return os.pread(self._stacks, 16_384, here).decode(errors="replace")

    def figures(self) -> Figures:
        """Return what it has last told of itself."""
        data = self._board.read()
        told = None if data is None else read(data)
        self._figures = self._figures if told is None else told
        return self._figures

    def as_process(self) -> Process:
        """Return what can be told of it now, whether it can still tell anything or not."""
        figures = self.figures()
        return Process(figures, self.lag, max(figures.life.beat_at, self.renewed_at))

    def last_words(self, job: Job) -> str:
        """Return the last lines that it logged about a job, and what it wrote as it died."""
        return self._box.read(str(job.id))

    def close(self) -> None:
        """Let go of the rest."""
        os.close(self._stacks)
        self._stacks = -1
        self._box.close()
        self._board.close()
