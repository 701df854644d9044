"""Owns wake-ups: a process that has nothing to do says so, and is notified of new jobs.

They are hints; polling is the truth. A process that is woken more often than it can sleep stops
asking for it, and looks by itself, so that busy producers never pay for a NOTIFY.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta

from psycopg import sql

from windlass.core.errors import StoreError
from windlass.store.postgres.lanes import Lanes
from windlass.store.postgres.wire import AsyncWire

_ASLEEP = timedelta(minutes=2)
_PROBE_EVERY = 20.0
_PROBE_PATIENCE = 5.0
_HEARD_WITHIN = 10.0
_WAKES_KEPT = 100
_CALM = 1.0
_GLANCE = 0.005
_LONGEST_BACKOFF = 10.0
Sleep = Callable[[str, timedelta], Awaitable[None]]


class Ear:
    """Hears of new jobs on a connection of its own, and knows whether it hears.

    `sleep(id, span)` writes into the store that we want to be notified, `rise(id)` that we do not.
    `tell(word)` notifies us of a word, by another connection.
    """

    def __init__(
        self,
        conninfo: str | None,
        channel: str,
        *,
        sleep: Sleep,
        rise: Callable[[str], Awaitable[None]],
        tell: Callable[[str], Awaitable[None]],
        lanes: Lanes,
    ) -> None:
        self._conninfo = conninfo
        self._channel = channel
        self._sleep = sleep
        self._rise = rise
        self._tell = tell
        self._lanes = lanes
        self._id = secrets.token_hex(8)
        self._bell = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._connection: AsyncWire | None = None
        self._asleep_since: float | None = None
        self._calm_until = 0.0
        self._failures = 0
        self._wakes: deque[float] = deque(maxlen=_WAKES_KEPT)
        self.trouble = ""
        """Why they did not arrive, the last time that they did not."""
        self.listening = False
        """Whether notifications arrive, by the last probe."""
        self.mark = 0
        """Counts what may have changed; a wait for an older mark ends at once."""

    @property
    def is_deaf(self) -> bool:
        """Whether we want to hear, and do not."""
        return self._failures > 0 and not self.listening

    def start(self) -> None:
        """Begin to listen, unless it was decided to poll only."""
        if self._conninfo is not None and self._task is None:
            self._task = asyncio.create_task(self._listen(), name="windlass-listen")

    async def wait(self, mark: int, timeout: float) -> None:
        """Return once something may have changed since a mark, or time is up."""
        self.start()
        if not self.listening:
            await self._rest(mark, timeout)
        elif time.monotonic() < self._calm_until:
            await asyncio.sleep(min(_GLANCE, timeout))
        elif await self._is_asleep():
            await self._rest(mark, timeout)

    async def close(self) -> None:
        """Hear no more."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})
        if self._asleep_since is not None:
            self._asleep_since = None
            with suppress(StoreError):
                await self._rise(self._id)
        self.hang_up()

    def hang_up(self) -> None:
        """Close the connection, without anything that takes time."""
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
        """Say whether we asked to be woken before; if not, ask, and let the caller look again."""
        now = time.monotonic()
        if self._asleep_since is not None and now - self._asleep_since < _ASLEEP.seconds / 2:
            return True
        was_asleep = self._asleep_since is not None
        await self._sleep(self._id, _ASLEEP)
        self._asleep_since = now
        if not was_asleep:
            self._lanes.doubt()
        return was_asleep

    async def rest_no_more(self) -> None:
        """Leave wake-ups to others, since nothing more can be taken; at most once a second."""
        asleep = self._asleep_since
        if asleep is not None and time.monotonic() - asleep > _CALM:
            self._asleep_since = None
            await self._rise_quietly()

    def _ring(self) -> None:
        self.mark += 1
        self._bell.set()
        self._bell = asyncio.Event()
        self._lanes.woken(time.monotonic())

    # -- the connection ------------------------------------------------------------------------

    async def _listen(self) -> None:
        while True:
            try:
                await self._hear()
                self.trouble = "they are sent, and do not come through"
            except Exception as error:  # noqa: BLE001 - whatever it is, the ear tries again.
                self.trouble = str(error).strip().partition("\n")[0] or type(error).__qualname__
            self._failures += 1
            if self.listening:
                self.listening = False
                self._ring()  # Whoever sleeps now must poll.
                await self._rise_quietly()
            longest: float = min(0.1 * 2 ** min(self._failures, 10), _LONGEST_BACKOFF)
            await asyncio.sleep(longest * random.uniform(0.5, 1))  # noqa: S311 - spreads load.

    async def _hear(self) -> None:
        self.hang_up()
        self._asleep_since = None
        async with asyncio.timeout(_HEARD_WITHIN):
            self._connection = await AsyncWire.connect(
                self._conninfo or "", autocommit=True, prepare_threshold=None
            )
            listen = sql.SQL("LISTEN {}").format(sql.Identifier(self._channel))
            await self._connection.execute(listen)
        while await self._probe(self._connection):
            if not self.listening:
                self.listening = True
                self._failures = 0
                self._ring()  # Who fell asleep without being listed can be listed now.
            async for notice in self._connection.notifies(timeout=_PROBE_EVERY):
                self._take(notice.payload)

    async def _probe(self, connection: AsyncWire) -> bool:
        """Have ourselves notified, and see whether it arrives: through a pooler it cannot."""
        word = f"probe {secrets.token_hex(8)}"
        # Not by this connection: what a session tells itself comes back even through a pooler.
        await self._tell(word)
        deadline = time.monotonic() + _PROBE_PATIENCE
        heard = False
        while not heard and (left := deadline - time.monotonic()) > 0:
            # A batch to its end: a wake-up behind the probe would be lost with the generator.
            async for notice in connection.notifies(timeout=left, stop_after=1):
                heard = heard or notice.payload == word
                self._take(notice.payload)
        return heard

    def _take(self, payload: str) -> None:
        if self._id not in payload.split(" "):
            return
        now = time.monotonic()
        self._wakes.append(now)
        if len(self._wakes) == _WAKES_KEPT and now - self._wakes[0] < _CALM:
            self._calm_down(now)
        self._ring()

    def _calm_down(self, now: float) -> None:
        """Stop asking for wake-ups for a while: there is so much work that we find it ourselves."""
        self._wakes.clear()
        self._calm_until = now + _CALM
        if self._asleep_since is not None:
            self._asleep_since = None
            self._rising = asyncio.ensure_future(self._rise_quietly())

    async def _rise_quietly(self) -> None:
        with suppress(StoreError):
            await self._rise(self._id)
