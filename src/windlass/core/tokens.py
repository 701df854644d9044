"""Owns the account of a limit's tokens: who holds how many, which cool, and who wants some.

`serve(account, wishes, ...)` is a pure reducer over one record's part. What a worker holds is told
as a sum, never as a difference, so that a word of unknown fate can be said again; and what it gives
back is never more than it had. So at no time is there more than the capacity of all of it together.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from windlass.core.job import Json
from windlass.core.limits import Tokens

_PATIENCE = 1.0
"""Seconds for which who wants tokens waits for those who have some to let go of them."""
_REMEMBERED = 3.0
"""Seconds for which a wish that was not met is remembered, unless it is repeated."""
Cooling = list[list[Any]]
"""When tokens will have cooled, and how many, in any order."""


class Wish(NamedTuple):
    """What a worker wants of the tokens of a key, and what it keeps.

    It gives back what it held beyond what it `keeps`; of that, so many still cool for so many
    seconds. It wants `most` more, but not fewer than `least`: those would be of no use.
    """

    keeps: int = 0
    cools: tuple[tuple[float, int], ...] = ()
    least: int = 0
    most: int = 0


class Reply(NamedTuple):
    """What a worker has of the tokens of a key from now on.

    `share` is what it shall keep at most if it is to let others have some, which `wanted` says.
    `after` tells in how many seconds the next one will have cooled that nobody holds.
    """

    held: int
    granted: int
    wanted: bool
    share: int
    after: float | None


class _Hunger(NamedTuple):
    """Since when a worker has wanted tokens in vain, seen when last, and how many at once.

    Who is served after it leaves them to it, if it wants several or has waited for a while: else
    those that want few, or have some already, would always be first.
    """

    since: float
    seen: float
    least: int

    def goes_before(self, since: float, now: float) -> bool:
        """Say whether it goes before somebody who has wanted some since then."""
        return self.since < since and (self.least > 1 or now - self.since >= _PATIENCE)


class Served(NamedTuple):
    """The account afterwards, the replies by key, and who else holds any of it."""

    account: Json
    replies: dict[str, Reply]
    holders: frozenset[str]


def serve(
    account: Json,
    wishes: Mapping[str, Wish],
    *,
    worker: str,
    tokens: Tokens,
    now: float,
    ended: Collection[str] = (),
    busy: Collection[str] = (),
) -> Served:
    """Meet what wishes can be met; `now` is the store's time.

    What was held by workers whose lease has `ended` is free, unless its key is `busy`: then a job
    of such a worker is still on its way back.
    """
    book = _Book(account, tokens, now)
    for gone in ended:
        if gone != worker:
            book.free(gone, busy)
    replies = {key: book.meet(worker, key, wish) for key, wish in wishes.items()}
    holders = frozenset(book.holds) - {worker}
    return Served(book.closed(), replies, holders)


class _Book:
    """An account while it is worked on: a copy, with everything gone that is over."""

    def __init__(self, account: Json, tokens: Tokens, now: float) -> None:
        self._tokens = tokens
        self._now = now
        self.holds: dict[str, dict[str, int]] = {
            worker: dict(keys) for worker, keys in account.get("holds", {}).items()
        }
        self._cooling: dict[str, Cooling] = {}
        for key, entries in account.get("cooling", {}).items():
            for until, count in entries:
                self._cool(key, until - now, count)
        self._wants: dict[str, dict[str, float]] = {
            key: {worker: at for worker, at in wants.items() if abs(now - at) < _REMEMBERED}
            for key, wants in account.get("wants", {}).items()
        }
        self._starving: dict[str, dict[str, _Hunger]] = {
            key: {
                worker: hunger
                for worker, told in starving.items()
                if abs(now - (hunger := _Hunger(*told)).seen) < _REMEMBERED
            }
            for key, starving in account.get("starving", {}).items()
        }

    def free(self, gone: str, busy: Collection[str]) -> None:
        """Take from a worker that is no more; what it may have used last was used just now."""
        held = self.holds.pop(gone, {})
        kept = {key: count for key, count in held.items() if key in busy}
        if kept:
            self.holds[gone] = kept
        for key, count in held.items():
            if key not in kept:
                self._cool(key, self._tokens.cools, count)
        for wants in self._wants.values():
            wants.pop(gone, None)
        for starving in self._starving.values():
            starving.pop(gone, None)

    def meet(self, worker: str, key: str, wish: Wish) -> Reply:
        """Take back what a worker gives, and grant what it wants."""
        mine = self.holds.setdefault(worker, {})
        before = mine.get(key, 0)
        keeps = min(wish.keeps, before)
        given = before - keeps
        for left, count in sorted(wish.cools, reverse=True):
            cooling = min(count, given)
            given -= cooling
            self._cool(key, left, cooling)
        mine[key] = keeps
        wants = self._wants.setdefault(key, {})
        wants.pop(worker, None)
        left = self._left(key)
        starving = self._starving.setdefault(key, {})
        hunger = starving.pop(worker, None)
        since = self._now if hunger is None else hunger.since
        first = [other for other in starving.values() if other.goes_before(since, self._now)]
        ahead = sum(other.least for other in first)
        share = min(self._share(worker, key, wants), max(self._tokens.capacity - ahead, 0))
        granted = self._grant(wish, left - ahead, room=share - keeps if wants else left)
        if granted < wish.least:
            granted = 0
            wants[worker] = self._now
            if wish.least > 0:
                starving[worker] = _Hunger(since, self._now, wish.least)
        elif hunger is not None and not wish.least and before > keeps:
            starving[worker] = hunger  # It gives back what is too little for it.
        mine[key] = keeps + granted
        others = len(wants) > (worker in wants) or left < 0
        return Reply(keeps + granted, granted, others, share, self._after(key))

    def closed(self) -> Json:
        """Return the account, without what is empty."""
        holds = {
            worker: kept
            for worker, keys in self.holds.items()
            if (kept := {key: count for key, count in keys.items() if count > 0})
        }
        parts: Json = {
            "holds": holds,
            "cooling": {key: entries for key, entries in self._cooling.items() if entries},
            "wants": {key: wants for key, wants in self._wants.items() if wants},
            "starving": {
                key: {worker: list(hunger) for worker, hunger in starving.items()}
                for key, starving in self._starving.items()
                if starving
            },
        }
        return {name: part for name, part in parts.items() if part}

    def _cool(self, key: str, left: float, count: int) -> None:
        if self._tokens.cools:
            # A clock that was set back must not keep them for as long as it went back.
            left = min(left, self._tokens.cools)
        if left > 0 and count > 0:
            self._cooling.setdefault(key, []).append([self._now + left, count])

    def _left(self, key: str) -> int:
        held = sum(keys.get(key, 0) for keys in self.holds.values())
        cooling: int = sum(count for _, count in self._cooling.get(key, ()))
        return self._tokens.capacity - held - cooling

    def _share(self, worker: str, key: str, wants: Mapping[str, float]) -> int:
        holders = {other for other, keys in self.holds.items() if keys.get(key, 0)}
        parties = len(holders | wants.keys() | {worker})
        return -(-self._tokens.capacity // parties)

    def _grant(self, wish: Wish, left: int, *, room: int) -> int:
        """Return how much of a wish to grant; who has none yet gets what is of use to it."""
        room = room if wish.keeps else max(room, wish.least)
        return max(min(wish.most, left, room), 0)

    def _after(self, key: str) -> float | None:
        entries = self._cooling.get(key, ())
        return min((until - self._now for until, _ in entries), default=None)
