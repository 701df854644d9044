"""Sending events: from threads and coroutines, and in a transaction of one's own."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.app_on_store import Bed, on_embedded_stores
from windlass import CalledFromEventLoop, ConfigError, PayloadInvalid, Windlass
from windlass.core.changes import Changes
from windlass.core.records import News

pytestmark = pytest.mark.stores("postgres")


async def kept(app: Windlass) -> dict[str, list[bytes]]:
    """Hear all that was sent; return the payloads by topic."""
    topics = await app.store.topics(100)
    heard = await app.store.hear(topics, lambda _records, news, _now: Changes(answer=list(news)))
    found: dict[str, list[bytes]] = {}
    for each in heard.answer:
        assert isinstance(each, News)
        found.setdefault(each.topic, []).append(each.body.replace(b" ", b""))
    return found


def test_an_event_is_sent_from_a_thread_and_from_a_coroutine(bed: Bed) -> None:
    app = bed.app()
    app.send_event("paid:42", {"by": "card"})

    async def main() -> None:
        await app.asend_event("paid:42")
        await app.asend_event("paid:7", [1])
        with pytest.raises(CalledFromEventLoop, match="asend_event"):
            app.send_event("paid:42")
        assert await kept(app) == {
            "event:paid:42": [b'{"by":"card"}', b"null"],
            "event:paid:7": [b"[1]"],
        }

    asyncio.run(main())


def test_invalid_events_are_refused_at_once(bed: Bed) -> None:
    app = bed.app()
    with pytest.raises(ValueError, match="event must have a name"):
        app.send_event(" ")
    with pytest.raises(PayloadInvalid, match="paid:42"):
        app.send_event("paid:42", object())


@on_embedded_stores
def test_without_transactions_an_event_cannot_be_sent_in_one(bed: Bed) -> None:
    with pytest.raises(ConfigError, match="postgresql://"):
        bed.app().send_event("paid:42", tx=object())
