"""Owns wake-ups: an idle process registers as a sleeper, and is notified of new jobs.

Notifications are hints; polling is the truth. A process that is woken more often than it can sleep
stops registering, and polls, so that busy producers never pay for a NOTIFY.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta

import msgspec
from psycopg import sql

from windlass.core.errors import StoreError
from windlass.core.values.durations import backoff_seconds
from windlass.core.workers import WorkerInfo
from windlass.store.postgres.connections.connection import LoopConnection
from windlass.store.postgres.connections.dedicated import DedicatedConnection
from windlass.store.postgres.lane_cache import LaneCaches

_SLEEP_SPAN = timedelta(minutes=2)
_PROBE_INTERVAL_SECONDS = 20.0
_PROBE_TIMEOUT_SECONDS = 5.0
_LISTEN_TIMEOUT_SECONDS = 10.0
_MAX_WAKES = 100
_CALM_SECONDS = 1.0
_POLL_SECONDS = 0.005
_MAX_BACKOFF_SECONDS = 2.0


class Listener:
    """Receives notifications of new jobs on its own connection, and probes whether they arrive.

    The process registers as a sleeper, with the jobs it serves, on another connection.
    """

    def __init__(
        self,
        conninfo: str | None,
        channel: str,
        *,
        chores: DedicatedConnection,
        statements: Mapping[str, str],
        served: WorkerInfo | None,
        lanes: LaneCaches,
    ) -> None:
        self._conninfo = conninfo
        self._channel = channel
        self._chores = chores
        self._sql = statements
        self._lanes = lanes
        self._id = secrets.token_hex(8)
        self._bell = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._connection: LoopConnection | None = None
        self._asleep_since: float | None = None
        self._calm_until = 0.0
        self._failures = 0
        self._wakes: deque[float] = deque(maxlen=_MAX_WAKES)
        self.served = served
        """The worker whose jobs it is notified of; None: of all jobs."""
        self.trouble = ""
        """Why notifications did not arrive, the last time that they did not."""
        self.listening = False
        """Whether notifications arrive, by the last probe."""
        self.mark = 0
        """Counts what may have changed; a wait for an older mark ends at once."""

    @property
    def is_deaf(self) -> bool:
        """Whether notifications are wanted and do not arrive."""
        return self._failures > 0 and not self.listening

    def start(self) -> None:
        """Start to listen, unless this process only polls."""
        if self._conninfo is not None and self._task is None:
            self._task = asyncio.create_task(self._listen(), name="windlass-listen")

    async def wait(self, mark: int, timeout: float) -> None:
        """Return once something may have changed since a mark, or at the timeout."""
        self.start()
        if not self.listening:
            await self._rest(mark, timeout)
        elif time.monotonic() < self._calm_until:
            await asyncio.sleep(min(_POLL_SECONDS, timeout))
            self._lanes.call_again(time.monotonic())
        elif await self._is_asleep():
            await self._rest(mark, timeout)

    async def close(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})
        if self._asleep_since is not None:
            self._asleep_since = None
            await self._rise_quietly()
        self.close_now()

    def close_now(self) -> None:
        """Close the connection at once, without a statement."""
        self.listening = False
        if self._connection is not None:
            self._connection.pgconn.finish()

    async def _rest(self, mark: int, timeout: float) -> None:
        if mark != self.mark:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._bell.wait()

    async def _is_asleep(self) -> bool:
        """Return whether this process was registered before; if not, register it: the caller polls
        once more.
        """
        now = time.monotonic()
        if self._asleep_since is not None and now - self._asleep_since < _SLEEP_SPAN.seconds / 2:
            return True
        was_asleep = self._asleep_since is not None
        await self._sleep()
        self._asleep_since = now
        if not was_asleep:
            self._lanes.doubt()
        return was_asleep

    async def rest_no_more(self) -> None:
        """Leave wake-ups to other processes, since this one has no free slot; at most once a
        second.
        """
        asleep = self._asleep_since
        if asleep is not None and time.monotonic() - asleep > _CALM_SECONDS:
            self._asleep_since = None
            await self._rise_quietly()

    def _ring(self, queues: Sequence[str] = ()) -> None:
        self.mark += 1
        self._bell.set()
        self._bell = asyncio.Event()
        self._lanes.woken(time.monotonic(), queues)

    # -- the connection ------------------------------------------------------------------------

    async def _listen(self) -> None:
        while True:
            try:
                await self._hear()
                self.trouble = "notifications are sent but do not arrive"
            except Exception as error:  # noqa: BLE001 - whatever it is, the listener tries again.
                self.trouble = str(error).strip().partition("\n")[0] or type(error).__qualname__
            self._failures += 1
            if self.listening:
                self.listening = False
                self._ring()  # Waiting workers have to poll now.
                await self._rise_quietly()
            jitter = random.random()  # noqa: S311 - spreads load.
            longest = _MAX_BACKOFF_SECONDS
            await asyncio.sleep(backoff_seconds(self._failures, jitter, first=0.2, longest=longest))

    async def _hear(self) -> None:
        self.close_now()
        self._asleep_since = None
        async with asyncio.timeout(_LISTEN_TIMEOUT_SECONDS):
            self._connection = await LoopConnection.connect(
                self._conninfo or "", autocommit=True, prepare_threshold=None
            )
            listen = sql.SQL("LISTEN {}").format(sql.Identifier(self._channel))
            await self._connection.execute(listen)
        while await self._probe(self._connection):
            if not self.listening:
                self.listening = True
                self._failures = 0
                self._ring()  # Workers that wait without being registered can be registered now.
            async for notice in self._connection.notifies(timeout=_PROBE_INTERVAL_SECONDS):
                self._take(notice.payload)

    async def _probe(self, connection: LoopConnection) -> bool:
        """Send a notification to this process, and see whether it arrives: behind a pooler it does
        not.
        """
        word = f"probe {secrets.token_hex(8)}"
        # On another connection: a session's notification to itself arrives even behind a pooler.
        await self._run("tell", word)
        deadline = time.monotonic() + _PROBE_TIMEOUT_SECONDS
        heard = False
        while not heard and (left := deadline - time.monotonic()) > 0:
            # Read each batch to its end: a wake-up behind the probe would be lost with the
            # generator.
            async for notice in connection.notifies(timeout=left, stop_after=1):
                heard = heard or notice.payload == word
                self._take(notice.payload)
        return heard

    def _take(self, payload: str) -> None:
        sleepers, _, names = payload.partition(" [")
        if self._id not in sleepers.split(" "):
            return
        now = time.monotonic()
        self._wakes.append(now)
        if len(self._wakes) == _MAX_WAKES and now - self._wakes[0] < _CALM_SECONDS:
            self._calm_down(now)
        self._ring(_queues(names))

    def _calm_down(self, now: float) -> None:
        """Stop registering for a while: there is so much work that polling finds it."""
        self._wakes.clear()
        self._calm_until = now + _CALM_SECONDS
        if self._asleep_since is not None:
            self._asleep_since = None
            self._rising = asyncio.ensure_future(self._rise_quietly())

    async def _sleep(self) -> None:
        served = self.served
        queues = None if served is None or not served.queues else list(served.queues)
        others = None if served is None or not served.excluded else list(served.excluded)
        kinds = None if served is None or not served.kinds else list(served.kinds)
        worker = None if served is None else served.id
        await self._run("sleep", self._id, worker, queues, others, kinds, _SLEEP_SPAN)

    async def _rise_quietly(self) -> None:
        with suppress(StoreError):
            await self._run("rise", self._id)

    async def _run(self, statement: str, *values: object) -> None:
        await self._chores.run(lambda cursor: cursor.execute(self._sql[statement], values))


def _queues(names: str) -> list[str]:
    """Return the queues that a notification names behind the sleepers; none if it names none."""
    if not names:
        return []
    try:
        return msgspec.json.decode(f"[{names}", type=list[str])
    except msgspec.MsgspecError:
        return []  # Any role may send a notification.
