"""Owns the memory of lanes whose tokens are used up, so that they cost a plan next to nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from windlass.core.job import Head, Lane
from windlass.core.ledger import Ledger
from windlass.runtime.purses import Purse

_REMEMBERED = 100_000


class Spent:
    """Lanes that lack a token which is being asked for, or which cannot come before a time.

    `wanted` are purses for which the store is asked soon, `lacking` those of which it is known when
    to look again. As long as one is in either, and empty, to look at its lanes changes nothing.
    """

    def __init__(self, wanted: Mapping[Purse, int], lacking: Mapping[Purse, float]) -> None:
        self._wanted = wanted
        self._lacking = lacking
        self._lanes: dict[Lane, tuple[Purse, Sequence[Ledger]]] = {}

    def note(self, lane: Lane, purses: Sequence[Purse]) -> None:
        """Remember that a lane lacks a token of the last of its purses, and has all others."""
        purse = purses[-1]
        if purse.ledger.amount > 1:
            return  # Who uses much of it is known to starve by being asked for again and again.
        if len(self._lanes) > _REMEMBERED:
            self._lanes.clear()
        self._lanes[lane] = (purse, [each.ledger for each in purses])

    def leave_out(self, heads: Iterable[Head], now: float) -> list[Head]:
        """Return heads without those of lanes that are known to lack a token still.

        Their tokens count as needed by that, as if they had been asked for. All this is in one
        loop, since it is done for every lane in every plan.
        """
        lanes, wanted, lacking = self._lanes, self._wanted, self._lacking
        others = []
        for head in heads:
            noted = lanes.get(head.lane)
            if noted is not None:
                purse, ledgers = noted
                ledger = ledgers[-1]
                if ledger.idle <= ledger.reserved and (
                    lacking.get(purse, now) > now or purse in wanted
                ):
                    for each in ledgers:
                        each.needed_at = now
                    continue
            others.append(head)
        return others

    def clear(self) -> None:
        """Forget all lanes, since other tokens may be needed for them by now."""
        self._lanes.clear()
