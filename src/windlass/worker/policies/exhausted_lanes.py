"""Owns the memory of lanes whose tokens are used up, so that a plan can skip them cheaply."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from windlass.core.claims.lanes import Head
from windlass.core.jobs.job import Lane
from windlass.core.policies.limit_holding import TokenHolding
from windlass.worker.policies.limit_tokens import HeldTokens

_MAX_LANES = 100_000


class ExhaustedLanes:
    """Lanes that lack a token which is requested already, or not available before a known time.

    `wanted` are tokens that are requested soon, `lacking` those with a known time of the next look.
    As long as a lane's missing token is in either, and empty, looking at the lane changes nothing.
    """

    def __init__(
        self, wanted: Mapping[HeldTokens, int], lacking: Mapping[HeldTokens, float]
    ) -> None:
        self._wanted = wanted
        self._lacking = lacking
        self._lanes: dict[Lane, tuple[HeldTokens, Sequence[TokenHolding]]] = {}

    def note(self, lane: Lane, draws: Sequence[HeldTokens]) -> None:
        """Record that a lane lacks the last of these tokens, and has all others."""
        tokens = draws[-1]
        if tokens.ledger.amount > 1:
            return  # Asking again and again is how a job that uses many tokens is known to starve.
        if len(self._lanes) > _MAX_LANES:
            self._lanes.clear()
        self._lanes[lane] = (tokens, [each.ledger for each in draws])

    def leave_out(self, heads: Iterable[Head], now: float) -> list[Head]:
        """Return heads without the lanes that are known to lack a token still.

        Their tokens count as needed by that, as if they had been requested. All this is in one
        loop, since it runs for every lane in every plan.
        """
        lanes, wanted, lacking = self._lanes, self._wanted, self._lacking
        others = []
        for head in heads:
            noted = lanes.get(head.lane)
            if noted is not None:
                tokens, ledgers = noted
                ledger = ledgers[-1]
                if ledger.idle <= ledger.reserved and (
                    lacking.get(tokens, now) > now or tokens in wanted
                ):
                    for each in ledgers:
                        each.needed_at = now
                    continue
            others.append(head)
        return others

    def clear(self) -> None:
        """Forget all lanes, since they may need other tokens by now."""
        self._lanes.clear()
