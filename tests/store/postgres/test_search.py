"""A search meets rows that other programs wrote, and none of them stops it."""

from __future__ import annotations

import asyncio
from uuid import UUID

import psycopg
import pytest

from tests.support.clocked_stores import opened
from windlass.app.enqueueing.id_generator import IdGenerator
from windlass.core.jobs.queries import filter_of
from windlass.core.search.scan import Budget

IDS = IdGenerator()
HALF = r'{"a": "\ud800", "b": "x"}'
ODD = [
    HALF,
    r'{"a": "\udc00 \ud83d", "b": "x"}',
    r'{"a\u0000": 1, "b": "x"}',
    "[" * 960 + "]" * 960,
    "[1]",
    '"text"',
    "null",
    "1e999999",
]
EMOJI = r'{"a": "\ud83d\ude00", "b": "x"}'
INSERT = """
INSERT INTO windlass.jobs (id, kind, payload, headers) VALUES (%s, 'work', %s, %s)
"""


@pytest.mark.parametrize(
    ("search", "finds_sound"),
    [
        ("payload.b:x", True),
        ("payload.b:x*", True),
        ("payload.a:*", True),
        ("payload.a:😀", True),
        ("-payload.b:x", False),
        ("header.b:x", True),
        ("tag:vip", True),
        ("tag:v*", True),
        ("-tag:vip", False),
    ],
)
def test_a_row_that_cannot_be_read_is_passed_over(
    migrated_url: str, search: str, finds_sound: bool
) -> None:
    """Prevents: one producer's half of a character that breaks everybody's search."""
    sound = IDS.next()
    with psycopg.connect(migrated_url) as db:
        for odd in ODD:
            db.execute(INSERT, [IDS.next(), odd, odd])
        db.execute(INSERT, [sound, EMOJI, '{"b": "x", "windlass-tags": "vip"}'])

    async def look() -> list[UUID]:
        async with opened(migrated_url) as store:
            which = filter_of({"search": search})
            page = await store.find(which, limit=100, budget=Budget(seconds=60), brief=True)
            return [job.id for job in page.jobs]

    found = asyncio.run(look())
    assert (sound in found) is finds_sound
    assert len(found) == (1 if finds_sound else len(ODD))
