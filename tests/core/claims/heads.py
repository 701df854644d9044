"""Owns the heads of lanes that tests plan with, and the rooms of workers."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

from hypothesis import strategies as st

from windlass.core.claims.lanes import Claim, Head
from windlass.core.claims.plan import Policies, plan
from windlass.core.claims.room import Pool, Room
from windlass.core.jobs.job import Lane

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
KINDS = {"async": Pool.LOOP, "sync": Pool.THREADS, "isolated": Pool.ISOLATED}
ROOM = Room(slots=10, threads=4, isolated_processes=2)


def head(
    kind: str = "async",
    *,
    queue: str = "default",
    priority: int = 0,
    key: str = "",
    waited: timedelta = timedelta(0),
) -> Head:
    return Head(lane=Lane(queue, kind, priority, key), position=NOON - waited)


def asked(
    *heads: Head, policies: Policies | None = None, room: Room = ROOM, at_most: int = 100
) -> list[Lane]:
    claim = plan(heads, policies or Policies(kinds=KINDS), room, at_most=at_most)
    return [ask.lane for ask in claim.asks]


heads = st.builds(
    head,
    st.sampled_from(["async", "sync", "isolated", "unknown"]),
    queue=st.sampled_from(["default", "mail", "paused"]),
    priority=st.integers(-5, 5),
    key=st.sampled_from(["", "acme", "globex"]),
    waited=st.timedeltas(timedelta(0), timedelta(hours=1)),
)


def meet(claim: Claim, held: Counter[Lane]) -> Counter[Lane]:
    """Meet a claim as a store does: in order, oldest first, within count and budgets."""
    budgets, taken = dict(claim.budgets), Counter[Lane]()
    for ask in claim.asks:
        count = min(
            ask.count, held[ask.lane] - taken[ask.lane], *(budgets[name] for name in ask.draws)
        )
        taken[ask.lane] += count
        for name in ask.draws:
            budgets[name] -= count
    return taken
