"""A store that is away: nothing more is claimed, all go on at once when it is back, few lines."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

import pytest

from tests.support.app_on_store import STORES, Bed, Through, in_state, log_lines, serving, until
from tests.support.network_proxy import Proxy
from tests.support.worker_state import RecordingState
from windlass import State, StoreUnavailable
from windlass.core.errors import StoreBusy
from windlass.core.jobs.job import Job
from windlass.core.jobs.settle import Transition
from windlass.observability.meters import Meters
from windlass.process import outage
from windlass.process.outage import Outage
from windlass.process.service import Service
from windlass.worker.engine.engine import Engine
from windlass.worker.engine.writing import group_writer
from windlass.worker.engine.writing.completer import Completer, Settlement

pytestmark = pytest.mark.stores(*STORES)

ON_POSTGRES = pytest.mark.parametrize("bed", ["postgres"], indirect=True)
SLOTS = 3


class TakesNoOutcome(Through):
    """A store that hands out jobs and takes no outcome, like one whose disk is nearly full."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.tries = 0
        self.is_full = True

    async def settle(self, transitions: Sequence[Transition]) -> list[bool]:
        if self.is_full:
            self.tries += 1
            raise StoreUnavailable("the disk is full")
        return await self.inner.settle(transitions)


def test_nothing_is_claimed_while_outcomes_cannot_be_written(bed: Bed) -> None:
    """Prevents jobs that run by the hundred, and again once their outcomes are lost."""
    store = TakesNoOutcome(bed.store())
    app = bed.app(store=store)
    ran: list[int] = []

    @app.job
    async def work(n: int) -> int:
        ran.append(n)
        return n

    async def main() -> None:
        handles = await app.aenqueue_many(work.draft(n) for n in range(30))
        async with serving(app, concurrency=SLOTS):
            await until(lambda: store.tries >= 4)
            # What was claimed before the first failure runs; a second claim may be under way.
            assert len(ran) <= 2 * SLOTS
            store.is_full = False
            for handle in handles:
                await in_state(handle, State.COMPLETED)

    asyncio.run(main())
    assert sorted(ran) == list(range(30))


class HeldByOthers(Through):
    """A store in which somebody holds every job that is to be settled."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.tries = 0
        self.is_held = True

    async def settle(self, transitions: Sequence[Transition]) -> list[bool]:
        if self.is_held:
            self.tries += 1
            raise StoreBusy("somebody else holds it")
        return await self.inner.settle(transitions)


def test_outcomes_that_others_hold_up_take_slots_and_give_them_back(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prevents the same where the store answers, and a worker that claims nothing afterwards."""
    monkeypatch.setattr(group_writer, "_ASIDE_SECONDS", 0.02)
    store = HeldByOthers(bed.store())
    app = bed.app(store=store)
    ran: list[int] = []

    @app.job
    async def work(n: int) -> int:
        ran.append(n)
        return n

    async def main() -> None:
        handles = await app.aenqueue_many(work.draft(n) for n in range(30))
        async with serving(app, concurrency=SLOTS):
            await until(lambda: store.tries >= 20 * SLOTS)
            assert len(ran) <= 2 * SLOTS
            store.is_held = False
            for handle in handles:
                await in_state(handle, State.COMPLETED)

    asyncio.run(main())
    assert sorted(ran) == list(range(30))


class Probe(Service):
    """A service that fails while the store is away, and then waits for half an hour."""

    longest_backoff = 3600.0

    def __init__(self, name: str, store: Any) -> None:
        super().__init__()
        self.name = name
        self.store = store
        self.ticks = 0
        self._errors = 30

    async def tick(self) -> float:
        self.ticks += 1
        await self.store()
        return 3600.0


def test_the_first_answer_ends_the_pauses_of_everybody(caplog: pytest.LogCaptureFixture) -> None:
    """Prevents a worker that idles for half a minute beside a store that is back."""
    caplog.set_level("INFO", "windlass.outage")
    is_up = False

    async def store() -> None:
        if not is_up:
            raise StoreUnavailable("connection refused")

    async def main() -> None:
        nonlocal is_up
        shared = Outage()
        shared.attach()
        services = [Probe(f"probe {n}", store) for n in range(5)]
        for service in services:
            service.start(shared)
        await until(lambda: all(service.ticks == 1 for service in services))
        is_up = True
        shared.failed("heart", StoreUnavailable("connection refused"))
        await asyncio.to_thread(shared.answered, "heart")
        await until(lambda: all(service.ticks == 2 for service in services))
        await until(lambda: not shared.is_on)
        await asyncio.gather(*(service.stop() for service in services))

    asyncio.run(main())
    assert len(log_lines(caplog, "store.lost")) == 1
    assert len(log_lines(caplog, "store.back")) == 1


def test_a_word_from_outside_lets_everybody_try_again() -> None:
    """Prevents a worker that waits although its supervisor has reached the store."""
    tried = asyncio.Event()

    async def store() -> None:
        tried.set()
        raise StoreUnavailable("connection refused")

    async def main() -> None:
        shared = Outage()
        shared.attach()
        service = Probe("probe", store)
        service.start(shared)
        await asyncio.wait_for(tried.wait(), 60)
        tried.clear()
        await until(lambda: shared.is_on)
        await until(lambda: not tried.is_set())
        await asyncio.to_thread(shared.rouse)
        await asyncio.wait_for(tried.wait(), 60)
        assert shared.is_on
        await service.stop()

    asyncio.run(main())


def test_an_answer_that_is_followed_by_a_failure_does_not_end_the_outage(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prevents a log that says lost and back by turns while reads work and writes do not."""
    caplog.set_level("INFO", "windlass.outage")
    monkeypatch.setattr(outage, "_BACK_SECONDS", 0.0)

    async def main() -> None:
        shared = Outage()
        shared.failed("completer", StoreUnavailable("the disk is full"))
        shared.failed("operator_requests", StoreUnavailable("the disk is full"))
        shared.answered("operator_requests")
        shared.failed("completer", StoreUnavailable("the disk is full"))
        await asyncio.sleep(0.01)
        assert shared.is_on
        shared.answered("completer")
        await until(lambda: not shared.is_on)

    asyncio.run(main())
    assert len(log_lines(caplog, "store.lost")) == 1
    assert len(log_lines(caplog, "store.back")) == 1


def test_an_unreachable_store_is_logged_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "windlass.outage")
    now = 1000.0
    shared = Outage(now=lambda: now)
    for _ in range(181):
        shared.failed("claimer", StoreUnavailable("connection refused"))
        now += 1
    assert len(log_lines(caplog, "store.lost")) == 1
    assert [line["away_for"] for line in log_lines(caplog, "store.away")] == ["1m", "2m", "3m"]


@pytest.mark.parametrize("role", ["worker", "supervisor"])
def test_every_line_about_an_outage_says_which_process_writes_it(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, role: Any
) -> None:
    caplog.set_level("INFO", "windlass.outage")
    monkeypatch.setattr(outage, "_BACK_SECONDS", 0.0)
    monkeypatch.setattr(outage, "REMINDER_SECONDS", 0.0)

    async def main() -> None:
        shared = Outage(role=role)
        shared.failed("heart", StoreUnavailable("connection refused"))
        shared.failed("heart", StoreUnavailable("connection refused"))
        shared.answered("heart")
        await until(lambda: not shared.is_on)

    asyncio.run(main())
    for event in ("store.lost", "store.away", "store.back"):
        (line,) = log_lines(caplog, event)
        assert (line["role"], line["pid"]) == (role, os.getpid())


@pytest.mark.parametrize("bed", ["memory"], indirect=True)
def test_a_completer_that_is_stopped_in_an_outage_says_when_the_store_answers(bed: Bed) -> None:
    """Prevents an outage without an end for everybody else, when the last outcomes are written."""
    store = TakesNoOutcome(bed.store())

    async def main() -> None:
        shared = Outage()
        shared.attach()
        settled: list[Settlement] = []
        engine = SimpleNamespace(settled=settled.append, fenced=settled.append)
        writer = Completer(store, cast("Engine", engine), state=RecordingState(), meters=Meters())
        writer.start(shared)
        now = datetime.now(UTC)
        job = Job(
            id=uuid4(),
            kind="work",
            queue="default",
            priority=0,
            key="",
            state=State.RUNNING,
            payload=b"{}",
            due_at=now,
            created_at=now,
            started_at=now,
            attempt=1,
            worker="w",
            token=1,
        )
        writer.add(job, Transition(id=job.id, token=1, state=State.COMPLETED))
        stopping = asyncio.ensure_future(writer.stop())
        await until(lambda: store.tries >= 3)
        assert shared.is_on
        rings = shared.rings
        store.is_full = False
        await stopping
        await until(lambda: len(settled) == 1)
        await until(lambda: shared.rings > rings)
        await until(lambda: not shared.is_on)

    asyncio.run(main())


# -- a server that is really away ------------------------------------------------------------------


@pytest.fixture
def proxy(bed: Bed) -> Iterator[Proxy]:
    with Proxy(bed.url) as proxy:
        yield proxy


@ON_POSTGRES
def test_an_outage_is_one_line_at_each_end_and_no_traceback(
    bed: Bed, proxy: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    """Prevents a log in which nothing else can be found after a minute without the server."""
    caplog.set_level("DEBUG", "windlass")
    app = bed.app()
    app.configure(url=proxy.url(bed.url))

    @app.job
    async def work() -> int:
        return 1

    def failures() -> int:
        return len(log_lines(caplog, "service.failed"))

    async def main() -> None:
        async with serving(app):
            assert await (await work.aenqueue()).aresult("60s") == 1
            proxy.refuse()
            proxy.reset()
            await until(lambda: failures() >= 20, within=30)
            proxy.accept()
            assert await (await work.aenqueue()).aresult("60s") == 1
            await until(lambda: log_lines(caplog, "store.back"))

    asyncio.run(main())
    loud = [record for record in caplog.records if record.levelname not in ("DEBUG", "INFO")]
    assert [record.msg["event"] for record in loud if isinstance(record.msg, dict)] == [
        "store.lost"
    ]
    assert len(log_lines(caplog, "store.back")) == 1
    assert not any(record.exc_info for record in caplog.records)
