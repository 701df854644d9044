"""Owns what a worker holds of one key of a limit, what it says about that, and how that is decided.

When it says it, and to which store, is up to `limits.Limits`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import NamedTuple

from windlass.core.changes import Changes
from windlass.core.job import Json
from windlass.core.ledger import Ledger
from windlass.core.limits import Limit, Measure
from windlass.core.tokens import Reply, Wish, serve

_PATIENCE = 1.0
"""Seconds for which jobs that use much of a limit may be passed by those that use less."""
SPARE = 0.5
"""Seconds after which tokens that nobody here needed are given back."""


class Purse:
    """The tokens of one key under one measure of a limit."""

    __slots__ = (
        "_asked_at", "_starves_at", "_starving", "free_at", "is_rate", "key", "ledger", "limit",
        "measure", "name", "record", "retry_at",
    )  # fmt: skip

    def __init__(self, limit: Limit, measure: Measure, key: str, ledger: Ledger) -> None:
        self.limit = limit
        self.measure = measure
        self.is_rate = measure is Measure.RATE
        self.key = key
        self.ledger = ledger
        self.record = limit.record(key)
        self.name = f"limit:{limit.name}:{measure.value}:{key}"
        self.retry_at = -math.inf
        self.free_at: float | None = None
        """When there will be some, by what the store last said; None: nobody knows."""
        self._starving = 0
        self._starves_at = self._asked_at = -math.inf

    def is_kept_for_others(self, amount: int, left: int, now: float) -> bool:
        """Say whether jobs of such an amount have to wait for some that use more, and starve.

        Those have been asked for in vain for a while, and still are.
        """
        if amount >= self._starving:
            self._asked_at = now
            if left >= amount:
                self._starving = 0
            elif self._starving < amount:
                self._starving, self._starves_at = amount, now + _PATIENCE
            return False
        if now - self._asked_at > _PATIENCE:
            self._starving = 0
        return self._starving > 0 and now >= self._starves_at

    def want(self, amount: int, *, slots: int, now: float) -> Wish:
        """Ask for so many tokens as a worker with so many slots may soon need, or give some back.

        Under a rate it is what is good for a second, so that a limit which does not bind is seldom
        asked for.
        """
        ledger, tokens = self.ledger, self.ledger.tokens
        if give := self.surplus(now, is_needed=True):
            return ledger.wish(now, give=give)
        free = max(ledger.free, 0)
        if self.is_rate:
            most = max(slots * amount, math.ceil(tokens.capacity / max(tokens.cools, 1.0))) - free
        else:
            most = slots * amount - ledger.held
        least = max(amount - free, 1)
        return ledger.wish(now, least=least, most=max(most, least))

    def surplus(self, now: float, *, is_needed: bool) -> int:
        """Return how many tokens are better off elsewhere."""
        ledger = self.ledger
        ledger.tick(now)
        if not is_needed and not self.was_needed(now):
            return ledger.held
        if ledger.wanted and ledger.free < ledger.amount:
            return ledger.over + ledger.free  # Of no use here, and maybe elsewhere.
        return ledger.over

    def was_needed(self, now: float) -> bool:
        """Say whether anybody used them, or asked for them, lately."""
        return now - self.ledger.needed_at < SPARE


class Answer(NamedTuple):
    """What was decided: the replies, and who else holds tokens there."""

    replies: dict[Purse, Reply]
    holders: frozenset[str]


def reducer(
    worker: str,
    wishes: Mapping[Purse, Wish],
    *,
    gone: frozenset[str],
    busy: Mapping[str, frozenset[str]],
) -> Callable[[Mapping[str, Json], datetime], Changes[Answer]]:
    """Return what decides on wishes under the lock of their records."""

    def decide(known: Mapping[str, Json], now: datetime) -> Changes[Answer]:
        records = {name: dict(record) for name, record in known.items()}
        replies: dict[Purse, Reply] = {}
        holders: set[str] = set()
        for (name, measure), purses in _grouped(wishes).items():
            record = records.setdefault(name, {})
            limit, tokens = purses[0].limit, purses[0].ledger.tokens
            served = serve(
                record.pop(measure.value, {}),
                {purse.key: wishes[purse] for purse in purses},
                worker=worker,
                tokens=tokens,
                now=now.timestamp(),
                ended=gone,
                busy=busy.get(limit.name, ()) if limit.ordered else (),
            )
            if served.account:
                record[measure.value] = served.account
            replies |= {purse: served.replies[purse.key] for purse in purses}
            holders |= served.holders
        changed = {
            name: record or None
            for name, record in records.items()
            if record != known.get(name, {})
        }
        return Changes(answer=Answer(replies, frozenset(holders)), records=changed)

    return decide


def _grouped(wishes: Mapping[Purse, Wish]) -> dict[tuple[str, Measure], list[Purse]]:
    grouped: dict[tuple[str, Measure], list[Purse]] = {}
    for purse in wishes:
        grouped.setdefault((purse.record, purse.measure), []).append(purse)
    return grouped
