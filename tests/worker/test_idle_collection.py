"""Young objects are collected while a worker rests, and not while a job begins."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.app_on_store import Bed, in_state, serving, until
from windlass import State
from windlass.worker.idle_collection import IdleCollection

LIMIT = 20_000
"""High enough that nothing else reaches half of it."""


@pytest.fixture
def collected() -> Iterator[list[int]]:
    """Collect the generations of all collections, with known thresholds."""
    generations: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            generations.append(info["generation"])

    before = gc.get_threshold()
    gc.collect()
    gc.set_threshold(LIMIT, 2, 10)
    gc.callbacks.append(note)
    try:
        yield generations
    finally:
        gc.callbacks.remove(note)
        gc.set_threshold(*before)


def make(objects: int) -> list[Any]:
    return [[] for _ in range(objects)]


def test_objects_are_collected_once_a_collection_is_half_due(collected: list[int]) -> None:
    collection = IdleCollection()
    kept = make(LIMIT // 4)
    collection.rest()
    assert collected == []
    kept += make(LIMIT // 3)
    collection.rest()
    collection.rest()
    assert collected == [0]
    for _ in range(3):
        kept += make(2 * LIMIT // 3)
        collection.rest()
    assert collected == [0, 0, 0, 1]


def test_a_collector_that_is_off_stays_off(collected: list[int]) -> None:
    collection = IdleCollection()
    kept = make(2 * LIMIT // 3)
    gc.disable()
    try:
        collection.rest()
    finally:
        gc.enable()
    gc.set_threshold(0)
    collection.rest()
    assert collected == []
    assert kept


def test_some_collections_are_left_to_python(collected: list[int]) -> None:
    """Prevents: cycles among old objects that live as long as the worker."""
    collection, rests = IdleCollection(), 0
    kept: list[Any] = []
    while len(collected) == rests:
        assert rests < 100, "no collection is left to Python"
        kept += make(2 * LIMIT // 3)
        collection.rest()
        rests += 1
    assert rests > 10
    kept += make(LIMIT // 2)
    assert len(collected) == rests, "Python's own collection was due"
    collection.rest()
    kept += make(2 * LIMIT // 3)
    collection.rest()
    assert len(collected) == rests + 1


@pytest.mark.parametrize("bed", ["redis"], indirect=True)
def test_a_worker_collects_before_it_sleeps(bed: Bed, collected: list[int]) -> None:
    app = bed.app()
    kept: list[Any] = []

    @app.job
    async def hoard() -> None:
        kept.extend(make(2 * LIMIT // 3))

    async def main() -> None:
        async with serving(app, poll_interval="1m"):
            collected.clear()
            await in_state(await hoard.aenqueue(), State.COMPLETED)
            await until(lambda: bool(collected))

    asyncio.run(main())
