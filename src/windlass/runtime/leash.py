"""Owns the leash between a worker's process and its supervisor: what is said, and the worker's end.

The worker says who it is and that its loop moves; the supervisor renews its lease, since C code
that holds the interpreter's lock stops every thread of the worker, but not another process.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from datetime import timedelta

import msgspec
from msgspec import Struct

from windlass.core.job import Pulse
from windlass.runtime.blackbox import BlackBox
from windlass.runtime.board import Board
from windlass.settings import Settings

VARIABLE = "WINDLASS_LEASH"
"""The variable by which a supervisor tells a worker's process which descriptors it shares."""
ASK_FOR_STACK: int | None = signal.SIGRTMIN + 4 if hasattr(signal, "SIGRTMIN") else None
"""The signal on which a worker's process shows its stack, even if no Python can run in it."""
Renew = Callable[[str, Pulse, timedelta], bool]


class Hello(Struct, tag=True):
    """A worker: this is what I work with. `patience` is how long my loop may stand still."""

    settings: Settings
    location: str
    patience: float | None


class Registered(Struct, tag=True):
    """A worker: I hold this lease from now on, and no other; or none any more."""

    worker: str


class Ready(Struct, tag=True):
    """A worker: I serve."""


class Beat(Struct, tag=True):
    """A worker: my process lives, and so long ago its loop moved."""

    pulse: Pulse
    lag: float


class Leaving(Struct, tag=True):
    """A worker: I end by myself; replace me, or do not, since there is nothing left to do."""

    why: str
    replace: bool


class Renewed(Struct, tag=True):
    """A supervisor: your lease is renewed."""


class Lost(Struct, tag=True):
    """A supervisor: this lease of yours is gone."""

    worker: str


Word = Hello | Registered | Ready | Beat | Leaving | Renewed | Lost
_reads = msgspec.json.Decoder(Word)


class End:
    """One end of the leash: words go as lines of JSON."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._rest = b""
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._broken = False
        self._unsaid: list[Word] = []

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._end.fileno()

    def say(self, word: Word) -> bool:
        """Send a word, unless the other end is gone; a fork of ours has nothing to say.

        Whoever does not listen holds nobody up: what it has no room for is said with the next word,
        and a beat, after which others come, not at all.
        """
        if os.getpid() != self._pid:
            return False
        with self._lock:
            self._unsaid.append(word)
            while self._unsaid and self._send(self._unsaid[0]):
                self._unsaid.pop(0)
            self._unsaid = [each for each in self._unsaid if not isinstance(each, Beat)]
        return not self._broken

    def _send(self, word: Word) -> bool:
        if self._broken:
            return False
        data = msgspec.json.encode(word) + b"\n"
        try:
            sent = self._end.send(data, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            sent = 0
        # Half a word may be on its way, so no other can follow.
        self._broken = sent < len(data)
        return not self._broken

    def hear(self) -> list[Word] | None:
        """Return the words that have arrived, waiting for one if need be; None at the end."""
        try:
            data = self._end.recv(65_536)
        except (BlockingIOError, InterruptedError):
            return []
        except OSError:
            return None
        if not data:
            return None
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [_reads.decode(line) for line in lines]

    def close(self) -> None:
        """Hang up."""
        self._end.close()


class Leash:
    """The worker's end: it tells how the worker is, and hears when its lease is lost.

    If the supervisor is gone, or stands still, the worker renews by itself.
    """

    def __init__(self, end: End, box: int | None = None, board: int | None = None) -> None:
        self._end = end
        self._box = box
        self.board = None if board is None else Board(board)
        """Where the worker leaves its figures."""
        self._lost: set[str] = set()
        self._renewed_at = time.monotonic()
        self.is_held = True
        """Whether there is a supervisor at the other end."""

    @classmethod
    def from_environment(cls) -> Leash | None:
        """Take up the leash that a supervisor left for this process, if there is one."""
        told = os.environ.pop(VARIABLE, None)
        if told is None:
            return None
        end, stacks, box, board = map(int, told.split(","))
        for shared in (end, stacks, box, board):
            os.set_inheritable(shared, False)
        if ASK_FOR_STACK is not None:
            faulthandler.register(ASK_FOR_STACK, file=stacks, all_threads=False)
        return cls(End(socket.socket(fileno=end)), box, board)

    @property
    def renewed_at(self) -> float:
        """When the lease was renewed last, by `time.monotonic`."""
        return self._renewed_at

    def record(self) -> None:
        """Let the last lines that this process logs survive it, once logging is configured."""
        if self._box is not None:
            BlackBox.attach(self._box)

    def start(self, orphaned: Callable[[], None]) -> None:
        """Begin to listen; `orphaned` is called in a thread when the supervisor is gone."""
        listening = threading.Thread(
            target=self._listen, args=(orphaned,), name="windlass-leash", daemon=True
        )
        listening.start()

    def say(self, word: Word) -> None:
        """Tell the supervisor something."""
        if isinstance(word, Registered):
            self._renewed_at = time.monotonic()
        self._end.say(word)

    def renewing(self, renew: Renew, lease: timedelta) -> Renew:
        """Return a way to renew that leaves it to the supervisor for as long as that does it."""

        def beat(worker: str, pulse: Pulse, timeout: timedelta) -> bool:
            self._end.say(Beat(pulse, pulse.loop_lag.total_seconds()))
            if worker in self._lost:
                return False
            if time.monotonic() - self._renewed_at < lease.total_seconds() / 2 and self.is_held:
                return True
            alive = renew(worker, pulse, max(timeout, lease / 3))
            self._renewed_at = time.monotonic()
            return alive

        return beat

    def _listen(self, orphaned: Callable[[], None]) -> None:
        while (words := self._end.hear()) is not None:
            for word in words:
                if isinstance(word, Lost):
                    self._lost.add(word.worker)
                elif isinstance(word, Renewed):
                    self._renewed_at = time.monotonic()
        self.is_held = False
        orphaned()
