"""A worker whose rounds are made by hand: all that is due happens, and then nothing more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from uuid import uuid4

import pytest

from windlass import Windlass
from windlass.core.changes import Changes
from windlass.core.claims.lanes import Claim
from windlass.core.errors import WriteUncertain
from windlass.core.jobs.job import Job, NewJob
from windlass.core.records import Json, News
from windlass.process.service import Service
from windlass.store import Store
from windlass.store.memory import MemoryStore
from windlass.testing import ManualClock
from windlass.testing import manual_worker as by_hand
from windlass.testing.manual_worker import ManualWorker

HOUR = timedelta(hours=1)


class Chimes(Service):
    """Enqueues a job whenever the alarm of a record goes off, and sets it anew."""

    name = "chimes"

    def __init__(self, store: Store) -> None:
        super().__init__()
        self._store = store

    async def tick(self) -> float:
        ringing = await self._store.ringing(10)
        for name in ringing.records:
            await self._store.apply([name], self._chime)
        return 1.0

    def _chime(self, records: Mapping[str, Json], now: datetime) -> Changes[None]:
        (name,) = records
        return Changes(answer=None, alarms={name: now + HOUR}, enqueue=[noted("chime")])


class Ears(Service):
    """Enqueues a job for every piece of news."""

    name = "ears"

    def __init__(self, store: Store) -> None:
        super().__init__()
        self._store = store

    async def tick(self) -> float:
        if topics := await self._store.topics(10):
            await self._store.hear(topics, self._hear)
        return 1.0

    def _hear(
        self, records: Mapping[str, Json], news: Sequence[News], now: datetime
    ) -> Changes[None]:
        return Changes(answer=None, enqueue=[noted("heard") for _ in news])


class Waits(Service):
    """Waits in its round for what nobody brings."""

    name = "waits"

    def __init__(self, _: Store) -> None:
        super().__init__()

    async def tick(self) -> float:
        await self._stopping.wait()
        return 0


class WaitsAndSaysSo(Waits):
    """The same, started as in any worker."""

    prompted = True


def noted(what: str) -> NewJob:
    """Make a job that notes something."""
    return NewJob(id=uuid4(), kind="note", payload=f'{{"what":"{what}"}}'.encode())


class Bell:
    """An app on a store with a clock, and workers by hand that have more services than usual."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.app = Windlass("memory://")
        self.app.store = MemoryStore(clock=self.clock)
        self.noted: list[str] = []

        @self.app.job(name="note")
        async def note(what: str) -> None:
            self.noted.append(what)
            if what == "tell":
                await self.app.store.send([News(topic="bell:told", id=uuid4(), body=b"1")])

    def worker(self, *services: Callable[[Store], Service]) -> ManualWorker:
        class WithMore(ManualWorker):
            def _services(self) -> list[Service]:
                return [*super()._services(), *(service(self._store) for service in services)]

        worker = self.app.worker(worker_class=WithMore)
        assert isinstance(worker, ManualWorker)
        return worker

    async def set_alarm(self, at: datetime) -> None:
        changes = Changes(answer=None, records={"bell:x": {}}, alarms={"bell:x": at})
        await self.app.store.apply([], lambda _, __: changes)

    async def advance(self, worker: ManualWorker, span: timedelta) -> None:
        await self.clock.advance(span)
        worker.moved(span)


def test_an_alarm_is_due_like_a_job_and_what_comes_of_it_happens_at_once() -> None:
    bell = Bell()

    async def main() -> None:
        await bell.set_alarm(bell.clock() + HOUR)
        async with bell.worker(Chimes) as worker:
            assert await worker.work() == 0
            for number in range(1, 4):
                assert await worker.next_at() == bell.clock() + HOUR
                assert await worker.next_at(alarms=False) is None
                await bell.advance(worker, HOUR)
                assert await worker.work() == 1
                assert bell.noted == ["chime"] * number

    asyncio.run(main())


def test_news_are_heard_as_soon_as_a_job_has_sent_them() -> None:
    bell = Bell()

    async def main() -> None:
        await bell.app.store.enqueue([noted("tell")])
        async with bell.worker(Ears) as worker:
            assert await worker.work() == 2
        assert bell.noted == ["tell", "heard"]

    asyncio.run(main())


def test_an_alarm_of_another_app_stays_and_does_not_block_a_round() -> None:
    """A schedule, or a kind, of another app: to wait for it would be to wait for ever."""
    bell = Bell()

    async def main() -> None:
        store = bell.app.store
        await bell.set_alarm(bell.clock() - HOUR)
        await store.send([News(topic="bell:else", id=uuid4(), body=b"1")])
        await store.enqueue([NewJob(id=uuid4(), kind="elsewhere", payload=b"{}")])
        async with bell.worker() as worker:
            assert await worker.work() == 0
            assert await worker.next_at() is None

    asyncio.run(main())


def test_a_lease_outlives_every_jump() -> None:
    bell = Bell()

    async def main() -> None:
        async with bell.worker() as worker:
            await bell.advance(worker, timedelta(days=30))
            await bell.app.store.enqueue([noted("late")])
            assert await worker.work() == 1

    asyncio.run(main())


def test_a_service_that_waits_in_its_round_has_to_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the first one that somebody adds would have every test with it hang, and not say why."""
    monkeypatch.setattr(by_hand, "_ROUND_SECONDS", 0.05)
    bell = Bell()

    async def main(service: type[Waits]) -> None:
        async with bell.worker(service) as worker:
            await worker.work()

    with pytest.raises(RuntimeError, match=r"a round of the waits has not ended.*`prompted`"):
        asyncio.run(main(Waits))
    asyncio.run(main(WaitsAndSaysSo))


def test_a_manual_worker_leaves_no_threads_and_no_lease_behind() -> None:
    bell = Bell()

    async def main() -> None:
        async with bell.worker() as worker:
            await worker.work()
        (record,) = await bell.app.store.workers()
        assert record.ended

    asyncio.run(main())


class LosesOneAnswer(MemoryStore):
    """A store that carries out a claim, and loses the answer to it."""

    is_lost = False

    async def claim(self, claim: Claim, *, worker: str, token: int) -> list[Job]:
        jobs = await super().claim(claim, worker=worker, token=token)
        if jobs and not self.is_lost:
            self.is_lost = True
            raise WriteUncertain("no answer")
        return jobs


def test_a_claim_whose_answer_is_lost_is_raised_and_its_jobs_are_given_back() -> None:
    """The reason why a worker that is driven by hand does not search for orphaned claims."""
    bell = Bell()
    bell.app.store = LosesOneAnswer(clock=bell.clock)

    async def main() -> None:
        await bell.app.store.enqueue([noted("once")])
        with pytest.raises(WriteUncertain):
            async with bell.worker() as worker:
                await worker.work()
        assert bell.noted == []
        async with bell.worker() as worker:
            assert await worker.work() == 1
        assert bell.noted == ["once"]

    asyncio.run(main())
