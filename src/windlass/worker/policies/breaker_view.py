"""Owns one worker's view of one breaker: its state, the probes it holds, the events to report.

It decides nothing: `core.policies.breaker_record` does, under the record's lock.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from windlass.core.policies.breaker import OWN, Rule
from windlass.core.policies.breaker_record import (
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
from windlass.observability.logs import get_logger

log = get_logger("windlass.breakers")
_MAX_EVENTS = 1_000
_KEEP_PROBES_SECONDS = 1.0
"""Seconds for which unused probes are kept."""
_EVENTS = {
    BreakerState.OPEN: "breaker.opened",
    BreakerState.HALF_OPEN: "breaker.half_opened",
    BreakerState.CLOSED: "breaker.closed",
}


class BreakerView:
    """A breaker as a worker sees it."""

    def __init__(self, rule: Rule, kinds: Collection[str]) -> None:
        self.rule = rule
        self.kinds = frozenset(kinds)
        self.record = RECORD + rule.name
        """The name of its record, and of the budget that claims draw on."""
        self.status: BreakerStatus | None = None
        """The state of the record; None before the first read."""
        self.events: list[Event] = []
        """Events of this worker that are not in the record yet."""
        self.gone: frozenset[str] = frozenset()
        """Workers that hold probes and whose leases have ended."""
        self.reserved = 0
        self.running = 0
        """Number of probes that run."""
        self.wanted_at = float("-inf")
        self._held = 0
        """Number of probes that may be used here: at most as many as the record has for this
        worker.
        """
        self._row = 0
        """Number of failures in a row, as far as this worker knows."""
        self._spent = 0
        """Number of probes that have ended and whose outcome is not in the record."""

    @property
    def state(self) -> BreakerState | None:
        """The state of the breaker; None before the first read."""
        return None if self.status is None else self.status.state

    @property
    def is_own(self) -> bool:
        """Whether this is the implicit breaker that a kind has for its system errors."""
        return self.rule.name.startswith(OWN)

    @property
    def is_closed(self) -> bool:
        """Whether every job may start: the breaker is closed, and no event here is about to open
        it.
        """
        status = self.status
        if status is None or status.state is not BreakerState.CLOSED:
            return False
        return self._row < self.rule.failures or status.forced is not None

    @property
    def left(self) -> int:
        """Number of further probes that may start."""
        return max(self._held - self.running - self.reserved - self._spent, 0)

    @property
    def holders(self) -> frozenset[str]:
        """The workers that hold probes."""
        return frozenset() if self.status is None else frozenset(self.status.probes)

    # -- what happens here ---------------------------------------------------------------------

    def failed(self, why: str, *, probe: bool) -> bool:
        """Record a failure; return whether it has to be reported."""
        if self.state is BreakerState.OPEN and not probe:
            return False  # Many jobs that were running when the breaker opened fail like this.
        if probe or len(self.events) < _MAX_EVENTS:
            self.events.append(Failure(why=why, probe=probe))
        self._row += 1
        self._spent += probe
        return True

    def succeeded(self, *, probe: bool) -> bool:
        """Record a success; return whether it changes the breaker."""
        if not probe and self.state not in (None, BreakerState.CLOSED):
            return False
        if not probe and self._row == 0:
            return False  # Failures that are being reported right now belong to the row, too.
        self._row = 0
        success = Success(probe=probe)
        if probe or not self.events or self.events[-1] != success:
            self.events.append(success)
        self._spent += probe
        return True

    # -- reports to the record, and reads of it ------------------------------------------------

    def is_cooled(self, now: datetime | None) -> bool:
        """Return whether the cooldown may be over; also if the store's time is unknown."""
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
        """Return whether the record has to be changed: events happened, or probes are needed or
        unused.
        """
        if self.status is None:
            return False
        return (
            bool(self.events)
            or self.gone != frozenset()
            or (self._attainable(worker, moment) != self.status.probes.get(worker, 0))
        )

    def is_starved(self, worker: str, moment: float) -> bool:
        """Return whether a job here waits for a probe while other workers hold all of them."""
        return (
            self.state is BreakerState.HALF_OPEN
            and self._is_wanted(moment)
            and self._attainable(worker, moment) <= 0
        )

    def take_news(self, worker: str, moment: float) -> list[Event]:
        """Return the changes to report; probes that are given back by that are not used
        any more.
        """
        count = self._wish(moment)
        self._held = min(self._held, count)
        news = [*self.events, Gone(workers=self.gone), Hold(worker=worker, count=count)]
        if self.status is not None and not self.kinds <= set(self.status.kinds):
            news.append(Enlist(kinds=self.kinds))
        self.events, self.gone = [], frozenset()
        return news

    def put_back(self, news: list[Event]) -> None:
        """Keep changes that could not be reported; the wish for probes is computed again."""
        kept = [each for each in news if isinstance(each, Failure | Success)]
        self.events = [*kept, *self.events]

    def reported(self, news: list[Event]) -> None:
        """Record that these changes are in the record."""
        outcomes = [each for each in news if isinstance(each, Failure | Success)]
        self._spent -= sum(each.probe for each in outcomes)

    def learn(self, status: BreakerStatus, worker: str) -> bool:
        """Take over the state of the record; return whether more jobs may start than before."""
        before, was_closed, left = self.status, self.is_closed, self.left
        self.status = status
        self._held = status.probes.get(worker, 0)
        self._row = _row(status.failures, self.events)
        self._log(before, status, worker)
        is_tried = status.state is BreakerState.HALF_OPEN
        began = is_tried and (before is None or before.state is not status.state)
        return began or (self.is_closed and not was_closed) or self.left > left

    def enlist(self) -> None:
        """Create a record with the kinds of this worker, so that people find the breaker."""
        known = set() if self.status is None else set(self.status.kinds)
        if not self.is_own and not self.kinds <= known:
            self.events.append(Enlist(kinds=self.kinds))

    def _is_wanted(self, moment: float) -> bool:
        return moment - self.wanted_at < _KEEP_PROBES_SECONDS

    def _wish(self, moment: float) -> int:
        """Return how many probes to hold: those in use, or all of them while jobs wait."""
        in_use = self.running + self.reserved
        wanted = self.state is BreakerState.HALF_OPEN and self._is_wanted(moment)
        return max(in_use, self.rule.probes) if wanted else in_use

    def _attainable(self, worker: str, moment: float) -> int:
        """Return how many of those this worker would get, as far as it knows."""
        if self.status is None:
            return 0
        held = self.status.probes.get(worker, 0)
        free = max(self.rule.probes - sum(self.status.probes.values()), 0)
        half_open = self.state is BreakerState.HALF_OPEN
        return min(self._wish(moment), held + free if half_open else held)

    def _log(self, before: BreakerStatus | None, status: BreakerStatus, worker: str) -> None:
        new = 0 if before is None else status.changes - before.changes
        changes = status.history[-new:] if new > 0 else ()
        if before is None and status.state is not BreakerState.CLOSED:
            changes = status.history[-1:]
        for change in changes:
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
    """Return the number of failures in a row after the events that are not reported yet."""
    for event in events:
        match event:
            case Failure():
                failures += 1
            case Success():
                failures = 0
    return failures
