"""Owns what one worker knows of one breaker: how it stands, what it holds, what is yet to be told.

It decides nothing: that is done under the record's lock, by `windlass.core.breaker_record`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from windlass.core.breaker import OWN, Rule
from windlass.core.breaker_record import (
    RECORD,
    BreakerState,
    BreakerStatus,
    Enlist,
    Event,
    Failure,
    Gone,
    Hold,
    Success,
)
from windlass.observe.logs import get_logger

log = get_logger("windlass.breakers")
_MOST_EVENTS = 1_000
_WANTED = 1.0
"""Seconds for which probes that nobody uses are kept."""
_EVENTS = {
    BreakerState.OPEN: "breaker.opened",
    BreakerState.HALF_OPEN: "breaker.half_opened",
    BreakerState.CLOSED: "breaker.closed",
}


class Watch:
    """A breaker as a worker sees it."""

    def __init__(self, rule: Rule, kinds: Collection[str]) -> None:
        self.rule = rule
        self.kinds = frozenset(kinds)
        self.record = RECORD + rule.name
        """The name of its record, and of the budget that claims draw on."""
        self.status: BreakerStatus | None = None
        """How it stands; None: nobody has looked yet."""
        self.events: list[Event] = []
        """What has happened here, and is not in the record yet."""
        self.gone: frozenset[str] = frozenset()
        """Workers that hold probes, and whose leases have ended."""
        self.reserved = 0
        self.running = 0
        """How many probes run."""
        self.wanted_at = float("-inf")
        self._held = 0
        """How many probes may be used here, which is no more than are held by the record."""
        self._row = 0
        """How many failures there were in a row, as far as is known here."""
        self._spent = 0
        """How many of them have ended, and the record does not know how."""

    @property
    def state(self) -> BreakerState | None:
        """Whether it is open; None: nobody has looked yet."""
        return None if self.status is None else self.status.state

    @property
    def is_own(self) -> bool:
        """Whether nobody has named it: a kind has it for its system errors."""
        return self.rule.name.startswith(OWN)

    @property
    def is_closed(self) -> bool:
        """Whether everything may start: it is closed, and not about to be opened by us."""
        status = self.status
        if status is None or status.state is not BreakerState.CLOSED:
            return False
        return self._row < self.rule.failures or status.forced is not None

    @property
    def left(self) -> int:
        """How many more probes may be started."""
        return max(self._held - self.running - self.reserved - self._spent, 0)

    @property
    def holders(self) -> frozenset[str]:
        """The workers that hold probes."""
        return frozenset() if self.status is None else frozenset(self.status.probes)

    # -- what happens here ---------------------------------------------------------------------

    def failed(self, why: str, *, probe: bool) -> bool:
        """Take notice of a failure; say whether anybody has to be told."""
        if self.state is BreakerState.OPEN and not probe:
            return False  # As many others that ran when it opened.
        if probe or len(self.events) < _MOST_EVENTS:
            self.events.append(Failure(why=why, probe=probe))
        self._row += 1
        self._spent += probe
        return True

    def succeeded(self, *, probe: bool) -> bool:
        """Take notice of a success; say whether it changes anything."""
        if not probe and self.state not in (None, BreakerState.CLOSED):
            return False
        if not probe and self._row == 0:
            return False  # Failures that are being told right now are in the row too.
        self._row = 0
        success = Success(probe=probe)
        if probe or not self.events or self.events[-1] != success:
            self.events.append(success)
        self._spent += probe
        return True

    # -- what is to be told, and learnt --------------------------------------------------------

    def is_cooled(self, now: datetime | None) -> bool:
        """Say whether it may be time to half-open it; if the store's time is unknown, it may."""
        status = self.status
        if status is None or status.state is not BreakerState.OPEN or status.forced is not None:
            return False
        return now is None or status.until is None or now >= status.until

    def left_open(self, now: datetime | None) -> timedelta | None:
        """Return how long the cooldown still lasts, if it does."""
        if self.status is None or self.status.until is None or now is None:
            return None
        return self.status.until - now

    def has_news(self, worker: str, moment: float) -> bool:
        """Say whether the record is to be changed: something happened, or probes come or go."""
        if self.status is None:
            return False
        return (
            bool(self.events)
            or self.gone != frozenset()
            or (self._attainable(worker, moment) != self.status.probes.get(worker, 0))
        )

    def is_starved(self, worker: str, moment: float) -> bool:
        """Say whether a job waits here for a probe, and others hold them all."""
        return (
            self.state is BreakerState.HALF_OPEN
            and self._is_wanted(moment)
            and self._attainable(worker, moment) <= 0
        )

    def take_news(self, worker: str, moment: float) -> list[Event]:
        """Return what is to be told; what is given back thereby is not used any more."""
        count = self._wish(moment)
        self._held = min(self._held, count)
        news = [*self.events, Gone(workers=self.gone), Hold(worker=worker, count=count)]
        if self.status is not None and not self.kinds <= set(self.status.kinds):
            news.append(Enlist(kinds=self.kinds))
        self.events, self.gone = [], frozenset()
        return news

    def put_back(self, news: list[Event]) -> None:
        """Keep what could not be told; what was wanted is found out anew."""
        kept = [each for each in news if isinstance(each, Failure | Success)]
        self.events = [*kept, *self.events]

    def told(self, news: list[Event]) -> None:
        """Take notice that this is in the record."""
        outcomes = [each for each in news if isinstance(each, Failure | Success)]
        self._spent -= sum(each.probe for each in outcomes)

    def learn(self, status: BreakerStatus, worker: str) -> bool:
        """Take notice of how it stands; say whether more may start than before."""
        before, was_closed, left = self.status, self.is_closed, self.left
        self.status = status
        self._held = status.probes.get(worker, 0)
        self._row = _row(status.failures, self.events)
        self._log(before, status, worker)
        is_tried = status.state is BreakerState.HALF_OPEN
        began = is_tried and (before is None or before.state is not status.state)
        return began or (self.is_closed and not was_closed) or self.left > left

    def enlist(self) -> None:
        """See to it that there is a record, with the kinds of ours, so that people find it."""
        known = set() if self.status is None else set(self.status.kinds)
        if not self.is_own and not self.kinds <= known:
            self.events.append(Enlist(kinds=self.kinds))

    def _is_wanted(self, moment: float) -> bool:
        return moment - self.wanted_at < _WANTED

    def _wish(self, moment: float) -> int:
        """Return how many probes to hold: those in use, or all, as long as jobs wait for them."""
        in_use = self.running + self.reserved
        wanted = self.state is BreakerState.HALF_OPEN and self._is_wanted(moment)
        return max(in_use, self.rule.probes) if wanted else in_use

    def _attainable(self, worker: str, moment: float) -> int:
        """Return how many of those it would get, as far as is known."""
        if self.status is None:
            return 0
        held = self.status.probes.get(worker, 0)
        free = max(self.rule.probes - sum(self.status.probes.values()), 0)
        half_open = self.state is BreakerState.HALF_OPEN
        return min(self._wish(moment), held + free if half_open else held)

    def _log(self, before: BreakerStatus | None, status: BreakerStatus, worker: str) -> None:
        """Log the changes since the last time, each with its reason."""
        new = 0 if before is None else status.changes - before.changes
        told = status.history[-new:] if new > 0 else ()
        if before is None and status.state is not BreakerState.CLOSED:
            told = status.history[-1:]
        for change in told:
            tell = log.warning if change.new is BreakerState.OPEN else log.info
            tell(
                _EVENTS[change.new],
                breaker=status.name,
                reason=change.why,
                by=change.by,
                worker_id=worker,
                kinds=sorted(self.kinds),
            )


def _row(failures: int, events: Sequence[Event]) -> int:
    """Return how many failures there are in a row after what is yet to be told."""
    for event in events:
        match event:
            case Failure():
                failures += 1
            case Success():
                failures = 0
    return failures
