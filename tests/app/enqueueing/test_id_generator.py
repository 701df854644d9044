"""Ids sort as they were made, and nobody who has seen some can compute others."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from itertools import pairwise
from uuid import UUID

import pytest

from windlass.app.enqueueing.id_generator import IdGenerator

_TAIL = (1 << 62) - 1


def steps(ids: list[UUID]) -> list[int]:
    """Return the random part of the distances between ids of one millisecond."""
    return [(later.int - earlier.int & _TAIL) - 1 for earlier, later in pairwise(ids)]


@pytest.fixture
def frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all ids be made in one millisecond."""
    now = time.time_ns()
    monkeypatch.setattr("windlass.app.enqueueing.id_generator.time.time_ns", lambda: now)


def untempered(number: int) -> int:
    """Return the word of a Mersenne Twister's state that an output was made of."""

    def undo(value: int, shift: int, mask: int) -> int:
        found = value
        for _ in range(32):
            moved = found >> shift if shift > 0 else found << -shift
            found = value ^ moved & mask
        return found & 0xFFFF_FFFF

    number = undo(number, 18, 0xFFFF_FFFF)
    number = undo(number, -15, 0xEFC6_0000)
    number = undo(number, -7, 0x9D2C_5680)
    return undo(number, 11, 0xFFFF_FFFF)


@pytest.mark.usefixtures("frozen")
def test_a_generator_is_not_rebuilt_from_the_ids_that_it_made() -> None:
    """Prevents: 625 ids of one process give away all later ones, as Python's own generator does."""
    ids = IdGenerator()
    seen = steps([ids.next() for _ in range(625)])
    rebuilt = random.Random()
    rebuilt.setstate((3, (*map(untempered, seen), 624), None))
    later = steps([ids.next() for _ in range(9)])
    assert later != [rebuilt.getrandbits(32) for _ in range(9)][1:]


@pytest.mark.usefixtures("frozen")
def test_many_ids_of_one_millisecond_differ_and_sort_as_they_were_made() -> None:
    ids = IdGenerator()
    made = [ids.next() for _ in range(5_000)]
    assert made == sorted(set(made))


def test_ids_stay_in_order_when_the_clock_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = IdGenerator()
    first = ids.next()
    now = time.time_ns()
    monkeypatch.setattr("windlass.app.enqueueing.id_generator.time.time_ns", lambda: now - 10**12)
    assert first < ids.next() < ids.next()


def test_a_fork_does_not_use_what_its_parent_has_read_ahead() -> None:
    """Prevents: the ids of a forked server's children differ from one another as their parent's."""
    script = """
import os, time
now = time.time_ns()
time.time_ns = lambda: now
from windlass.app.enqueueing.id_generator import IdGenerator

ids = IdGenerator()
ids.next(), ids.next()
child = os.fork()
if child:
    os.waitpid(child, 0)
print(*(ids.next() for _ in range(100)), flush=True)
"""
    said = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    one, other = ([UUID(each) for each in line.split()] for line in said.stdout.splitlines())
    assert len({*one, *other}) == 200
    assert not {*steps(one)} & {*steps(other)}


def test_ids_of_flows_differ() -> None:
    ids = IdGenerator()
    assert len({ids.next_flow() for _ in range(1000)}) == 1000
