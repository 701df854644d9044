"""Owns single connections that an event loop keeps for itself: they reconnect, and never wait long.

A `Line` carries one piece of work at a time. A `HotLine` carries what workers do most: everything
that waits when the line is free goes together, in one round trip and one commit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Generic, TypeVar

import psycopg

from windlass.core.errors import StoreBusy, StoreUnavailable
from windlass.store.postgres.exchange import Answer, Query, exchange
from windlass.store.postgres.wire import TRANSIENT, AsyncWire, adapt, retried, translated

T = TypeVar("T")
PATIENCE = 15.0
"""Seconds after which a connection that does not answer counts as lost."""
Speak = Callable[[psycopg.AsyncCursor[Any]], Awaitable[T]]
Work = Callable[[AsyncWire], Awaitable[T]]


class Line:
    """One connection, made when it is needed and again when it was lost."""

    def __init__(self, conninfo: str, location: str) -> None:
        self._conninfo = conninfo
        self._location = location
        self._connection: AsyncWire | None = None
        self._turn = asyncio.Lock()

    async def run(self, speak: Speak[T], *, patience: float = PATIENCE) -> T:
        """Say something to the server; deadlocks and the like are tried again.

        Raises:
            StoreUnavailable: the server is away, or does not answer.
        """
        return await self._run(lambda wire: speak(wire.cursor(binary=True)), patience)

    def close(self) -> None:
        """Let go of the connection; the next piece of work makes a new one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.pgconn.finish()

    async def _run(self, work: Work[T], patience: float = PATIENCE) -> T:
        return await retried(lambda: self._attempt(work, patience))

    async def _attempt(self, work: Work[T], patience: float) -> T:
        try:
            async with asyncio.timeout(patience), self._turn:
                return await self._do(work)
        except TimeoutError as late:
            raise StoreUnavailable(f"{self._location} did not answer in {patience:g} s") from late

    async def _do(self, work: Work[T]) -> T:
        connection = await self._connected()
        try:
            with translated(self._location):
                return await work(connection)
        except StoreUnavailable as error:
            if not isinstance(error, StoreBusy) and not isinstance(error.__cause__, TRANSIENT):
                self.close()
            raise
        except asyncio.CancelledError:
            self.close()
            raise

    async def _connected(self) -> AsyncWire:
        if self._connection is None or self._connection.closed:
            with translated(self._location):
                self._connection = await AsyncWire.knock(self._conninfo)
            adapt(self._connection)
        return self._connection


@dataclass
class _Freight(Generic[T]):
    """A piece of work that waits for the line, and where its answer goes."""

    ask: Callable[[bool], Sequence[Query]]
    read: Callable[[Sequence[Answer]], T]
    durable: bool
    heavy: bool
    answer: asyncio.Future[T]


class HotLine(Line):
    """A line on which whatever waits goes together: one round trip, one commit.

    So an idle worker's outcome is written at once, and a busy one's acknowledgements travel with
    its next claim.
    """

    def __init__(self, conninfo: str, location: str) -> None:
        super().__init__(conninfo, location)
        self._waiting: list[_Freight[Any]] = []
        self._serving: asyncio.Task[None] | None = None
        self._arrived: list[tuple[_Freight[Any], list[Answer]]] = []

    async def carry(
        self,
        ask: Callable[[bool], Sequence[Query]],
        read: Callable[[Sequence[Answer]], T],
        *,
        durable: bool = False,
        heavy: bool = False,
    ) -> T:
        """Let queries go with the next group, and return what is read in their answers.

        If any of a group is durable, its commit waits for the disk; who asks is told. Of what is
        `heavy` one piece goes at a time, so that its answer is read while the server works at the
        next. Whoever is cancelled here gives up the answer; the work is done all the same.
        """
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        freight = _Freight(ask, read, durable, heavy, answer)
        self._waiting.append(freight)
        if self._serving is None or self._serving.done():
            self._serving = asyncio.create_task(self._serve(), name="windlass-line")
        return await freight.answer

    async def _serve(self) -> None:
        # Whatever else the loop has ready now may want to go along.
        await asyncio.sleep(0)
        while self._waiting:
            group = self._load()
            try:
                await self._carry_all(group)
            except BaseException as error:
                for freight in group:
                    _fail(freight, error)
                if not isinstance(error, Exception):
                    raise
            if not self._waiting:
                self._unload()
            else:
                # What was just acknowledged lets the next outcomes go along, too.
                await asyncio.sleep(0)

    def _load(self) -> list[_Freight[Any]]:
        heavy = [freight for freight in self._waiting if freight.heavy][1:]
        group = [freight for freight in self._waiting if freight not in heavy]
        self._waiting = heavy
        return group

    async def _carry_all(self, group: list[_Freight[Any]]) -> None:
        try:
            answers = await self._run(lambda wire: self._exchange(wire, group))
        except Exception as error:
            is_away = isinstance(error, StoreUnavailable) and not isinstance(error, StoreBusy)
            if len(group) == 1 or is_away:
                raise
            # One of them cannot be taken; the others shall not suffer for it.
            for freight in group:
                try:
                    await self._carry_all([freight])
                except Exception as error:  # noqa: BLE001 - whoever waits hears of it.
                    _fail(freight, error)
            return
        for freight, answer in zip(group, answers, strict=True):
            if freight.durable:
                _deliver(freight, answer)
            else:
                self._arrived.append((freight, answer))

    async def _exchange(self, wire: AsyncWire, group: list[_Freight[Any]]) -> list[list[Answer]]:
        durable = any(freight.durable for freight in group)
        asked = [freight.ask(durable) for freight in group]
        queries = [query for each in asked for query in each]
        answers = iter(await exchange(wire, queries, self._unload_soon))
        return [list(islice(answers, len(each))) for each in asked]

    def _unload_soon(self) -> None:
        """Read what has arrived while the server is busy with what was just sent."""
        if self._arrived:
            asyncio.get_running_loop().call_soon(self._unload)

    def _unload(self) -> None:
        arrived, self._arrived = self._arrived, []
        for freight, answers in arrived:
            _deliver(freight, answers)


def _deliver(freight: _Freight[Any], answers: Sequence[Answer]) -> None:
    if freight.answer.done():
        return
    try:
        freight.answer.set_result(freight.read(answers))
    except Exception as error:  # noqa: BLE001 - whoever waits hears of it.
        _fail(freight, error)


def _fail(freight: _Freight[Any], error: BaseException) -> None:
    if not freight.answer.done():
        freight.answer.set_exception(error)
        freight.answer.exception()  # It may be that nobody waits any more; that is no error.
