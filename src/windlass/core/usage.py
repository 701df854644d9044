"""Owns what a limit looks like to people: what it is, what was changed, and how much is in use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from windlass.core.job import Json
from windlass.core.limits import RECORD, Change, Limit, Measure


@dataclass(frozen=True, kw_only=True)
class LimitState:
    """A limit as it is now; one that only the store knows of has what was changed of it.

    `held` are tokens of the concurrency that workers have, for jobs or for soon; `used` are those
    of the rate that they have, or that still cool. Keyed limits count those of all keys.
    """

    name: str
    rate: str | None
    burst: int | None
    concurrency: int | None
    keyed: bool
    changed: bool
    held: int
    used: int


def limit_state(
    name: str,
    limit: Limit | None,
    change: Json | None,
    accounts: Mapping[str, Json],
    now: float,
) -> LimitState:
    """Make up a limit's state from what the code, the records and the clock say."""
    told = Change.read(change or {})
    shown = limit.changed(change or {}) if limit is not None else told
    own = [
        account
        for record, account in accounts.items()
        if record == RECORD + name or record.startswith(f"{RECORD}{name}/")
    ]
    return LimitState(
        name=name,
        rate=None if shown.rate is None else str(shown.rate),
        burst=shown.burst,
        concurrency=shown.concurrency,
        keyed=limit is not None and limit.keyed,
        changed=change is not None,
        held=sum(_out(each.get(Measure.CONCURRENCY.value, {}), now) for each in own),
        used=sum(_out(each.get(Measure.RATE.value, {}), now) for each in own),
    )


def _out(account: Json, now: float) -> int:
    """Return how many tokens are out, of all keys."""
    held: list[int] = [
        count for keys in account.get("holds", {}).values() for count in keys.values()
    ]
    cooling: list[int] = [
        count
        for entries in account.get("cooling", {}).values()
        for until, count in entries
        if until > now
    ]
    return sum(held) + sum(cooling)
