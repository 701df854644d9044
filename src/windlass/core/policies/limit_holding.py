"""Owns the tokens of a limit that one worker was granted: idle, kept for a claim, in use, cooling.

Time is the worker's own, which never jumps; only durations travel to the store and back. Rounding
goes one way: a token is never used too early.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Any

from windlass.core.policies.limit import Tokens
from windlass.core.policies.limit_grants import Reply, Wish

_MAX_PORTIONS = 1_000
"""Into how many steps the cooling of many tokens is divided."""


class _Portion:
    """Tokens that cool together: all have by `until`, the `first` would have somewhat before."""

    __slots__ = ("count", "first", "until")

    def __init__(self, until: float, count: int) -> None:
        self.first = self.until = until
        self.count = count


class TokenHolding:
    """The tokens of one key that a worker holds; only replies change their number.

    `slack` is the number of seconds within which a claimed job has normally started; after that
    `has_begun` is asked, and its tokens begin to cool. `amount` is the most that a job uses.
    """

    def __init__(
        self,
        tokens: Tokens,
        slack: float = 0.0,
        has_begun: Callable[[Any], bool] = lambda _job: True,
        amount: int = 1,
    ) -> None:
        self.tokens = tokens
        self.slack = slack
        self.has_begun = has_begun
        self.amount = amount
        self.idle = 0
        self.reserved = 0
        """How many of the idle ones a claim under way may use."""
        self._used = self._starting = self._cools = self._doubtful = 0
        self._fresh: dict[Any, tuple[float, int]] = {}
        self._cooling: deque[_Portion] = deque()
        self._returned: list[tuple[float, int]] = []
        self.unconfirmed = False
        """Whether a message to the store is unanswered."""
        self.pressed = False
        """Whether there may be more than there should be."""
        self.wanted = False
        """Whether others want some, by the last reply."""
        self.share = tokens.capacity
        """The most to keep if others want some."""
        self.needed_at = float("-inf")
        """When they were last used, or asked for."""

    @property
    def free(self) -> int:
        """How many can be used now, without those that go to others once they return."""
        return max(self.idle - self.reserved - (self.over if self.pressed else 0), 0)

    @property
    def over(self) -> int:
        """How many more there are than should be, since others want some or the limit fell."""
        most = self.tokens.capacity
        if self.wanted:
            # All of them if another worker has waited too long.
            most = min(most, max(self.share, self.amount) if self.share else 0)
        return max(self.held - most, 0)

    @property
    def held(self) -> int:
        """How many there are here, in whatever use."""
        return self.idle + self._used + self._starting + self._cools + self._doubtful

    # -- jobs ----------------------------------------------------------------------------------

    def take(self, amount: int) -> None:
        """Give tokens to a job that runs; it returns them.

        A job that took more than there were, since the holding was lost, leaves a debt.
        """
        self.idle -= amount
        self._used += amount

    def bring(self, amount: int) -> None:
        """Take them back from a job that has ended."""
        self._used -= amount
        self.idle += amount

    def hold_back(self, amount: int, until: float) -> None:
        """Take them back, and block them until a time."""
        self._used -= amount
        self._cool(until, amount)

    def doubt(self, amount: int) -> int:
        """Block tokens that a claim may have used, until `resolve`; return how many."""
        doubtful = max(min(amount, self.idle), 0)
        self.idle -= doubtful
        self._doubtful += doubtful
        return doubtful

    def resolve(self, amount: int) -> None:
        """Take back tokens of a claim that has not used them."""
        self._doubtful -= amount
        self.idle += amount

    def release(self) -> bool:
        """Release tokens that are held back; return whether there were any.

        Not those of a claim of unknown fate: one of its jobs may be running with them.
        """
        if not self._cools:
            return False
        self.idle += self._cools
        self._cools = 0
        self._cooling.clear()
        return True

    def start(self, job: Any, amount: int, now: float) -> None:
        """Use tokens up for a start that is about to happen; they cool once it has."""
        self.idle -= amount
        self._starting += amount
        self._fresh[job] = (now, amount)

    def started(self, job: Any, now: float) -> None:
        """Let the tokens of a start cool, if they do not yet."""
        if (fresh := self._fresh.pop(job, None)) is not None:
            _, amount = fresh
            self._starting -= amount
            self._cool(now + self.tokens.cools, amount)

    def refund(self, job: Any) -> None:
        """Take back the tokens of a start that did not happen."""
        if (fresh := self._fresh.pop(job, None)) is not None:
            self._starting -= fresh[1]
            self.idle += fresh[1]

    # -- time ----------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Let the tokens of overdue starts cool, and make cooled ones usable."""
        if not self._fresh and not self._cooling:
            return
        while self._fresh:
            job, (at, count) = next(iter(self._fresh.items()))
            if at + self.slack > now:
                break
            if self.has_begun(job):
                self.started(job, now)
            else:
                del self._fresh[job]
                self._fresh[job] = (now, count)
        while self._cooling and self._cooling[0].until <= now:
            cooled = self._cooling.popleft().count
            self._cools -= cooled
            self.idle += cooled

    @property
    def next_tick(self) -> float | None:
        """When time will have changed something: a token has cooled, or begins to."""
        moments = [portion.until for portion in islice(self._cooling, 1)]
        moments += [at + self.slack for at, _ in islice(self._fresh.values(), 1)]
        return min(moments, default=None)

    def _cool(self, until: float, count: int) -> None:
        if count <= 0:
            return
        self._cools += count
        if self._cooling:
            latest = self._cooling[-1]
            # Many small portions would take long to count; the later time holds for both.
            if latest.until <= until <= latest.first + self.tokens.cools / _MAX_PORTIONS:
                latest.until = until
                latest.count += count
                return
        self._cooling.append(_Portion(until, count))
        if len(self._cooling) > 1 and self._cooling[-2].until > until:
            self._cooling = deque(sorted(self._cooling, key=lambda portion: portion.until))

    # -- the store -----------------------------------------------------------------------------

    def wish(self, now: float, *, least: int = 0, most: int = 0, give: int = 0) -> Wish:
        """Return the message to the store; up to `give` idle tokens are released at once.

        They are gone from here whatever becomes of the message; the caller may have to repeat it.
        """
        idle = max(min(give, self.idle - self.reserved), 0)
        self.idle -= idle
        give -= idle
        while give > 0 and self._cooling:
            latest = self._cooling[-1]
            let_go = min(give, latest.count)
            give -= let_go
            self._cools -= let_go
            self._returned.append((latest.until, let_go))
            latest.count -= let_go
            if not latest.count:
                self._cooling.pop()
        self.unconfirmed = True
        cools = tuple((until - now, count) for until, count in self._returned if until > now)
        return Wish(keeps=self.held, cools=cools, least=least, most=most)

    def change(self, tokens: Tokens) -> None:
        """Adapt to a change of the limit."""
        self.tokens = tokens
        self.pressed = True

    def take_in(self, wish: Wish, reply: Reply) -> bool:
        """Add the granted tokens; False: others may have the former ones by now."""
        self._returned.clear()
        self.unconfirmed = False
        self.wanted, self.share = reply.wanted, reply.share
        self.pressed = self.wanted or self.held > self.tokens.capacity
        if reply.held - reply.granted < wish.keeps:
            return False
        self.idle += reply.granted
        return True
