"""Owns the decision about a limit: how many tokens each worker gets, over all workers.

The account in the store says who holds how many, which cool, and who wants some.

`serve(account, wishes, ...)` is a pure reducer over one record's part. Workers report their
holdings as sums, never as differences, so that a message of unknown fate can be repeated; and a
worker never returns more than it had. So all holdings together never exceed the capacity.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from windlass.core.policies.limit import Tokens
from windlass.core.records import Json

_PATIENCE_SECONDS = 1.0
"""Seconds for which a worker that wants tokens waits for the holders to release some."""
_REMEMBERED_SECONDS = 3.0
"""Seconds for which an unmet wish is remembered, unless it is repeated."""
Cooling = list[list[Any]]
"""When tokens will have cooled, and how many, in any order."""


class Wish(NamedTuple):
    """The tokens of a key that a worker wants, and those that it keeps.

    The worker returns everything it held beyond what it `keeps`; of that, `cools` says
    which still cool. It wants `most` more, but not fewer than `least`: those would be of no use.
    """

    keeps: int = 0
    cools: tuple[tuple[float, int], ...] = ()
    least: int = 0
    most: int = 0


class Reply(NamedTuple):
    """The tokens of a key that a worker has from now on.

    `share` is the most that it should keep if others want some, which `wanted` says. `after` is the
    number of seconds until the next token that nobody holds has cooled. `freed` says that a person
    wants tokens that are held back for a retry to be used now.
    """

    held: int
    granted: int
    wanted: bool
    share: int
    after: float | None
    freed: bool = False


class _Hunger(NamedTuple):
    """Since when a worker has lacked the tokens it wants, when it last asked, and for how many.

    Workers served after it leave the tokens to it if it wants several or has waited for a while;
    otherwise workers that want few, or hold some already, would always come first.
    """

    since: float
    seen: float
    least: int

    def goes_before(self, since: float, now: float) -> bool:
        return self.since < since and (self.least > 1 or now - self.since >= _PATIENCE_SECONDS)


class Served(NamedTuple):
    """The account afterwards, the replies by key, and the other holders."""

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
    """Meet the wishes that can be met; `now` is the store's time.

    Tokens of workers whose lease has `ended` are free, unless their key is `busy`: then a job of
    such a worker has not been rescued yet.
    """
    book = _Book(account, tokens, now)
    for gone in ended:
        if gone != worker:
            book.free(gone, busy)
    replies = {key: book.meet(worker, key, wish) for key, wish in wishes.items()}
    holders = frozenset(book.holds) - {worker}
    return Served(book.closed(), replies, holders)


def freed(account: Json, key: str) -> Json:
    """Return an account in which nothing of a key is held back for a retry any more.

    A worker itself releases what it holds back with its next message: only it knows whether a job
    of the key runs.
    """
    cooling = {name: each for name, each in account.get("cooling", {}).items() if name != key}
    is_held = any(keys.get(key) for keys in account.get("holds", {}).values())
    marks = sorted({*account.get("freed", ()), *([key] if is_held else ())})
    changed = {**account, "cooling": cooling, "freed": marks}
    return {name: part for name, part in changed.items() if part}


class _Book:
    """A working copy of an account, without expired holdings."""

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
            key: {worker: at for worker, at in wants.items() if abs(now - at) < _REMEMBERED_SECONDS}
            for key, wants in account.get("wants", {}).items()
        }
        self._starving: dict[str, dict[str, _Hunger]] = {
            key: {
                worker: hunger
                for worker, entry in starving.items()
                if abs(now - (hunger := _Hunger(*entry)).seen) < _REMEMBERED_SECONDS
            }
            for key, starving in account.get("starving", {}).items()
        }
        self._freed: set[str] = set(account.get("freed", ()))

    def free(self, gone: str, busy: Collection[str]) -> None:
        # The last use of a dead worker's tokens is unknown: now is the safe assumption.
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
        mine = self.holds.setdefault(worker, {})
        before = mine.get(key, 0)
        keeps = min(wish.keeps, before)
        given = before - keeps
        is_freed = before > 0 and key in self._freed
        self._freed -= {key} if is_freed else set()
        for left, count in () if is_freed else sorted(wish.cools, reverse=True):
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
            starving[worker] = hunger  # Too few tokens for a job are returned.
        mine[key] = keeps + granted
        others = len(wants) > (worker in wants) or left < 0
        return Reply(keeps + granted, granted, others, share, self._after(key), is_freed)

    def closed(self) -> Json:
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
            "freed": sorted(self._freed & {key for kept in holds.values() for key in kept}),
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
        """Return how much of a wish to grant; a worker without tokens gets a usable amount."""
        room = room if wish.keeps else max(room, wish.least)
        return max(min(wish.most, left, room), 0)

    def _after(self, key: str) -> float | None:
        entries = self._cooling.get(key, ())
        return min((until - self._now for until, _ in entries), default=None)
