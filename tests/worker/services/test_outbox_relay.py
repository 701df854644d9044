"""The outbox relay: news come to their hearers, soon or at once, and none holds up another."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import pytest

from tests.support.app_on_store import Bed, Through, log_lines, on_embedded_stores, until
from windlass import StoreUnavailable, Windlass
from windlass.core.changes import Changes
from windlass.core.records import Json, News
from windlass.store import Store
from windlass.worker.services.outbox_relay import OutboxRelay


class Listener:
    """Hears the news of topics, and notes them; some it cannot stand."""

    def __init__(self, store: Store, *, bad: str = "") -> None:
        self._store = store
        self._bad = bad
        self.heard: list[str] = []
        self.calls: list[list[str]] = []

    async def forget(self, names: Sequence[str]) -> None:
        raise NotImplementedError

    async def hear(self, topics: Sequence[str]) -> None:
        self.calls.append(list(topics))

        def decide(
            _records: Mapping[str, Json], news: Sequence[News], _now: datetime
        ) -> Changes[list[str]]:
            if any(each.topic == self._bad for each in news):
                raise RuntimeError("cannot stand this")
            return Changes(answer=[each.topic for each in news])

        self.heard += (await self._store.hear(topics, decide)).answer


async def send(app: Windlass, *topics: str) -> None:
    await app.store.send([News(topic=topic, id=app.ids.next()) for topic in topics])


def test_news_come_to_the_hearer_of_their_prefix(bed: Bed) -> None:
    app = bed.app()

    async def main() -> None:
        await app.store.open()
        events, others = Listener(app.store), Listener(app.store)
        relay = OutboxRelay(app.store, {"event:": events, "other:": others})
        await send(app, "event:a", "event:b:c", "event:a")
        relay.start()
        await until(lambda: len(events.heard) == 3)
        await relay.stop()
        assert sorted(events.heard) == ["event:a", "event:a", "event:b:c"]
        assert sorted(events.calls[0]) == ["event:a", "event:b:c"], "together, each topic once"
        assert others.calls == []
        assert not relay.is_busy

    asyncio.run(main())


@on_embedded_stores
def test_unhandled_news_are_left_for_other_workers(bed: Bed) -> None:
    app = bed.app()

    async def main() -> None:
        await app.store.open()
        relay = OutboxRelay(app.store, {})
        await send(app, "event:a")
        relay.start()
        await until(lambda: relay._next_look > 0)
        assert not await relay.is_anything_left()
        await relay.stop()
        assert await app.store.topics(10) == ["event:a"]

    asyncio.run(main())


@on_embedded_stores
def test_a_prompted_relay_handles_news_at_once(bed: Bed) -> None:
    app = bed.app()

    async def main() -> None:
        await app.store.open()
        listener = Listener(app.store)
        relay = OutboxRelay(app.store, {"event:": listener})
        relay.start()
        await until(lambda: relay._next_look > 0)
        relay._next_look += 1_000
        relay.rouse()
        await until(lambda: relay._next_look < asyncio.get_running_loop().time() + 100)
        relay._next_look += 1_000
        await send(app, "event:a")
        relay.tell("event:a")
        assert relay.is_busy
        await until(lambda: listener.heard)
        await relay.stop()

    asyncio.run(main())


@on_embedded_stores
def test_more_than_one_look_shows_are_heard_without_a_pause(bed: Bed) -> None:
    app = bed.app()

    async def main() -> None:
        await app.store.open()
        listener = Listener(app.store)
        relay = OutboxRelay(app.store, {"event:": listener})
        await send(app, *(f"event:{number}" for number in range(250)))
        for _ in range(3):
            await relay.tick()
        assert len(listener.heard) == 250
        assert max(map(len, listener.calls)) == 100

    asyncio.run(asyncio.wait_for(main(), 60))


@on_embedded_stores
def test_a_topic_that_cannot_be_heard_holds_up_no_other(
    bed: Bed, caplog: pytest.LogCaptureFixture
) -> None:
    app = bed.app()

    async def main() -> None:
        await app.store.open()
        listener = Listener(app.store, bad="event:bad")
        relay = OutboxRelay(app.store, {"event:": listener})
        await send(app, "event:a", "event:bad", "event:b")
        relay.start()
        await until(lambda: sorted(listener.heard) == ["event:a", "event:b"])
        await send(app, "event:c")
        relay.rouse()
        await until(lambda: "event:c" in listener.heard)
        await relay.stop()
        assert await app.store.topics(10) == ["event:bad"], "kept, and tried again later"

    asyncio.run(main())
    (line,) = log_lines(caplog, "news.unheard")
    assert line["topic"] == "event:bad"


@on_embedded_stores
def test_a_store_that_is_away_is_asked_again(bed: Bed) -> None:
    app = bed.app()

    class Away(Through):
        times = 0

        async def topics(self, limit: int) -> Any:
            self.times += 1
            if self.times < 3:
                raise StoreUnavailable("away")
            return await self.inner.topics(limit)

    async def main() -> None:
        await app.store.open()
        listener = Listener(app.store)
        away: Any = Away(app.store)
        relay = OutboxRelay(away, {"event:": listener})
        await send(app, "event:a")
        relay.start()
        await until(lambda: listener.heard == ["event:a"])
        await relay.stop()

    asyncio.run(main())
