"""Owns the channel between a worker's process and its supervisor: messages, and the worker's end.

The worker reports its lease and that its loop moves; the supervisor renews the lease, since C code
that holds the interpreter's lock stops every thread of the worker, but not another process.
"""

from __future__ import annotations

import faulthandler
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import msgspec
from msgspec import Struct

from windlass.core.errors import WindlassError
from windlass.core.workers import WorkerPulse
from windlass.process import CHANNEL_VARIABLE
from windlass.process.channel import Channel
from windlass.process.exits.begun_jobs import BegunJobs
from windlass.process.exits.black_box import BlackBox
from windlass.process.stats_board import StatsBoard
from windlass.settings import Settings

ASK_FOR_STACK: int | None = signal.SIGRTMIN + 4 if hasattr(signal, "SIGRTMIN") else None
"""The signal on which a worker's process dumps its stack, even if no Python can run in it."""
_BEGIN_SECONDS = 120.0
_GREETING_SECONDS = 2.0
_BEAT_SECONDS = 0.25
Renew = Callable[[str, WorkerPulse, timedelta], bool]


class Hello(Struct, tag=True):
    """From a worker: its configuration. `patience` is how long its loop may be blocked."""

    settings: Settings
    location: str
    patience: float | None
    kinds: tuple[str, ...] = ()


class Registered(Struct, tag=True):
    """From a worker: it holds this lease from now on, and no other; empty: none any more."""

    worker: str


class Ready(Struct, tag=True):
    """From a worker: it serves."""


class Beat(Struct, tag=True):
    """From a worker: its process lives, and its loop moved this long ago."""

    pulse: WorkerPulse
    lag: float


class Leaving(Struct, tag=True):
    """From a worker: it ends by itself; `replace` says whether another one is to follow."""

    why: str
    replace: bool


class Begin(Struct, tag=True):
    """From a supervisor: it runs, and this process may import the app and serve."""


class Greeted(Struct, tag=True):
    """From a supervisor: it has read the hello, and printed its lines about it."""


class Stopping(Struct, tag=True):
    """From a supervisor: it asks this process to end; a signal follows, or has come before."""


class Renewed(Struct, tag=True):
    """From a supervisor: the lease is renewed."""


class Lost(Struct, tag=True):
    """From a supervisor: this lease is lost."""

    worker: str


Message = Hello | Registered | Ready | Beat | Leaving | Begin | Greeted | Stopping | Renewed | Lost
ChannelEnd = Channel[Message]


def channel_end(end: socket.socket) -> ChannelEnd:
    """Return one end of a channel between a worker and its supervisor."""
    return Channel(end, msgspec.msgpack.Decoder(Message))


class SupervisorChannel:
    """The worker's end: it reports the state of the worker, and hears when its lease is lost.

    If the supervisor is gone or stuck, the worker renews its lease itself.
    """

    def __init__(
        self,
        channel: ChannelEnd,
        box: int | None = None,
        board: int | None = None,
        begun: int | None = None,
    ) -> None:
        self._channel = channel
        self._box = box
        self.board = None if board is None else StatsBoard(board)
        """Where the worker writes its figures."""
        self._begun = begun
        self.begun_jobs: BegunJobs | None = None
        """Where the worker lists the jobs that have begun."""
        self._lost: set[str] = set()
        self._renewed_at = time.monotonic()
        self.renewed: Callable[[], None] = lambda: None
        """Called in a thread when the supervisor has renewed the lease."""
        self.loop_lag: Callable[[], float] = lambda: 0.0
        """Returns for how many seconds the worker's loop has been blocked; called in a thread."""
        self.is_held = True
        """Whether there is a supervisor at the other end."""
        self.is_signalled = False
        """Whether a signal has asked this process to end."""
        self._is_asked_to_stop = False

    @classmethod
    def from_environment(cls) -> SupervisorChannel:
        """Return the channel that a supervisor left for this process."""
        shared = os.environ.pop(CHANNEL_VARIABLE)
        descriptors = [int(descriptor) for descriptor in shared.split(",")]
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        end, stacks, box, board, begun = descriptors
        if ASK_FOR_STACK is not None:
            faulthandler.register(ASK_FOR_STACK, file=stacks, all_threads=False)
        return cls(channel_end(socket.socket(fileno=end)), box, board, begun)

    @property
    def renewed_at(self) -> float:
        """When the lease was last renewed, by `time.monotonic`."""
        return self._renewed_at

    @property
    def is_signalled_by_others(self) -> bool:
        """Whether a signal ends this process that its supervisor did not send: maybe a job's."""
        return self.is_signalled and self.is_held and not self._is_asked_to_stop

    def record(self) -> None:
        """Keep the last log lines of this process for its supervisor, once logging is
        configured.
        """
        if self._box is not None:
            BlackBox.attach(self._box)

    def wait_for_begin(self) -> bool:
        """Wait until the supervisor runs; return False if it ended before; called before `start`.

        The first worker is started before its supervisor has read its settings, which may be wrong.

        Raises:
            WindlassError: the supervisor does not say so, since it is of another release.
        """
        deadline = time.monotonic() + _BEGIN_SECONDS
        while (left := deadline - time.monotonic()) > 0:
            if not self._can_receive(left):
                break
            messages = self._channel.receive()
            if messages is None:
                return False
            self._is_asked_to_stop |= Stopping() in messages
            if Begin() in messages:
                self.begun_jobs = None if self._begun is None else BegunJobs(self._begun)
                return True
        raise WindlassError(
            f"the supervisor has not let this worker begin in {_BEGIN_SECONDS:g} s; if Windlass "
            "was replaced under a running supervisor, restart `windlass worker`"
        )

    def _can_receive(self, seconds: float) -> bool:
        """Wait for a message; not by `select`, which has no number for the 1,024th file."""
        poller = select.poll()
        poller.register(self._channel, select.POLLIN)
        return bool(poller.poll(seconds * 1_000))

    def wait_for_greeting(self) -> None:
        """Wait briefly for the answer to a hello; called before `start`.

        The lines that the supervisor prints about this worker then stand above the worker's own.
        """
        deadline = time.monotonic() + _GREETING_SECONDS
        while (left := deadline - time.monotonic()) > 0:
            if not self._can_receive(left):
                return
            messages = self._channel.receive()
            if messages is None or Greeted() in messages:
                return

    def start(self, orphaned: Callable[[], None]) -> None:
        """Start to listen; `orphaned` is called in a thread when the supervisor is gone."""
        threading.Thread(
            target=self._listen, args=(orphaned,), name="windlass-supervisor-channel", daemon=True
        ).start()

    def say(self, message: Message) -> None:
        if isinstance(message, Registered):
            self._renewed_at = time.monotonic()
        self._channel.offer(message)

    def renewing(self, renew: Renew, lease: timedelta) -> Renew:
        """Return a renewal function that leaves the renewal to the supervisor for as long as it
        works.
        """

        def beat(worker: str, pulse: WorkerPulse, timeout: timedelta) -> bool:
            # Further beats follow, so one that does not fit into the buffer is dropped.
            self._channel.offer(Beat(pulse, pulse.loop_lag.total_seconds()), keep=False)
            if worker in self._lost:
                return False
            if time.monotonic() - self._renewed_at < lease.total_seconds() / 2 and self.is_held:
                return True
            with self._beating(pulse):
                alive = renew(worker, pulse, max(timeout, lease / 3))
            self._renewed_at = time.monotonic()
            return alive

        return beat

    @contextmanager
    def _beating(self, pulse: WorkerPulse) -> Iterator[None]:
        """Beat from another thread while a renewal waits for a store that may be away."""
        answered = threading.Event()

        def beat() -> None:
            while not answered.wait(_BEAT_SECONDS):
                self._channel.offer(Beat(pulse, self.loop_lag()), keep=False)

        threading.Thread(target=beat, name="windlass-beats", daemon=True).start()
        try:
            yield
        finally:
            answered.set()

    def _listen(self, orphaned: Callable[[], None]) -> None:
        while (messages := self._channel.receive()) is not None:
            for message in messages:
                if isinstance(message, Lost):
                    self._lost.add(message.worker)
                elif isinstance(message, Renewed):
                    self._renewed_at = time.monotonic()
                    self.renewed()
                elif isinstance(message, Stopping):
                    self._is_asked_to_stop = True
        self.is_held = False
        orphaned()
