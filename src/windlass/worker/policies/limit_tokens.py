"""Owns the tokens that a worker holds of one key of a limit, its wishes, and their reducer.

`limit_requests` decides when the wishes are sent to the store.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import NamedTuple

from windlass.core.changes import Changes
from windlass.core.policies.limit import Limit, Measure
from windlass.core.policies.limit_grants import Reply, Wish, serve
from windlass.core.policies.limit_holding import TokenHolding
from windlass.core.records import Json

_STARVING_SECONDS = 1.0
"""Seconds for which jobs that use few tokens may overtake those that need many."""
SPARE_SECONDS = 0.5
"""Seconds after which unused tokens are given back."""


class HeldTokens:
    """The tokens of one key under one measure of a limit."""

    __slots__ = (
        "_asked_at", "_starves_at", "_starving", "free_at", "is_rate", "key", "ledger", "limit",
        "measure", "name", "record", "retry_at",
    )  # fmt: skip

    def __init__(self, limit: Limit, measure: Measure, key: str, ledger: TokenHolding) -> None:
        self.limit = limit
        self.measure = measure
        self.is_rate = measure is Measure.RATE
        self.key = key
        self.ledger = ledger
        self.record = limit.record(key)
        self.name = f"limit:{limit.name}:{measure.value}:{key}"
        self.retry_at = -math.inf
        self.free_at: float | None = None
        """When tokens will be free, by the store's last answer; None if unknown."""
        self._starving = 0
        self._starves_at = self._asked_at = -math.inf

    def is_kept_for_others(self, amount: int, left: int, now: float) -> bool:
        """Return whether jobs of such an amount have to wait for starving jobs that need more.

        Starving means: requested without success for a while, and still waiting.
        """
        if amount >= self._starving:
            self._asked_at = now
            if left >= amount:
                self._starving = 0
            elif self._starving < amount:
                self._starving, self._starves_at = amount, now + _STARVING_SECONDS
            return False
        if now - self._asked_at > _STARVING_SECONDS:
            self._starving = 0
        return self._starving > 0 and now >= self._starves_at

    def want(self, amount: int, *, slots: int, now: float) -> Wish:
        """Ask for as many tokens as a worker with this many slots may soon need, or give some back.

        Under a rate that is one second's worth, so that a limit which does not bind is rarely
        asked.
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
        """Return how many tokens are better used elsewhere."""
        ledger = self.ledger
        ledger.tick(now)
        if not is_needed and not self.was_needed(now):
            return ledger.held
        if ledger.wanted and ledger.free < ledger.amount:
            # Too few for a job here, but another worker may use them.
            return ledger.over + ledger.free
        return ledger.over

    def was_needed(self, now: float) -> bool:
        """Return whether the tokens were used or requested recently."""
        return now - self.ledger.needed_at < SPARE_SECONDS


class Answer(NamedTuple):
    """The decision of the reducer: the replies, and the other holders of these tokens."""

    replies: dict[HeldTokens, Reply]
    holders: frozenset[str]


def reducer(
    worker: str,
    wishes: Mapping[HeldTokens, Wish],
    *,
    gone: frozenset[str],
    busy: Mapping[str, frozenset[str]],
) -> Callable[[Mapping[str, Json], datetime], Changes[Answer]]:
    """Return the function that decides on wishes under the lock of their records."""

    def decide(known: Mapping[str, Json], now: datetime) -> Changes[Answer]:
        records = {name: dict(record) for name, record in known.items()}
        replies: dict[HeldTokens, Reply] = {}
        holders: set[str] = set()
        for (name, measure), holdings in _grouped(wishes).items():
            record = records.setdefault(name, {})
            limit, tokens = holdings[0].limit, holdings[0].ledger.tokens
            served = serve(
                record.pop(measure.value, {}),
                {holding.key: wishes[holding] for holding in holdings},
                worker=worker,
                tokens=tokens,
                now=now.timestamp(),
                ended=gone,
                busy=busy.get(limit.name, ()) if limit.ordered else (),
            )
            if served.account:
                record[measure.value] = served.account
            replies |= {holding: served.replies[holding.key] for holding in holdings}
            holders |= served.holders
        changed = {
            name: record or None
            for name, record in records.items()
            if record != known.get(name, {})
        }
        return Changes(answer=Answer(replies, frozenset(holders)), records=changed)

    return decide


def _grouped(wishes: Mapping[HeldTokens, Wish]) -> dict[tuple[str, Measure], list[HeldTokens]]:
    grouped: dict[tuple[str, Measure], list[HeldTokens]] = {}
    for holding in wishes:
        grouped.setdefault((holding.record, holding.measure), []).append(holding)
    return grouped
