"""Owns the times of recovery: how soon work went on after each fault, against the docs' promise."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate

from msgspec import Struct
from msgspec.structs import replace

from windlass.chaos.laws.history import History, Run, Strike
from windlass.chaos.laws.verdict import Finding, Violation

_LEASES = 2.0
"""Leases within which work goes on, counted from the end of the fault."""
_STARTS = 2.0
"""Starts of a worker that are allowed besides, for a fault after which all have to start again."""
_FREE = ("plain", "threaded", "transfer", "staged", "saga")
"""Kinds whose jobs wait for nothing but a worker."""
_FAIL_BY_THEMSELVES = ("flaky", "ordered", "saga")
_WAIT_FOR_LIMITS = ("limited", "paced")


class Recovery(Struct, frozen=True, kw_only=True):
    """What went on after a strike: a job that it had interrupted, or the first job that started."""

    strike: int
    job: str
    """The interrupted job; empty: any that was waiting."""
    seconds: float
    """From the strike to that."""
    at: float
    """When it ran."""
    since: float
    """When nothing was in its way any more: a job waited, and no later strike lasted."""


def recoveries(history: History) -> list[Recovery]:
    """Return, for each interrupted run whose job ran again, the time from the strike to that.

    It is counted from the end of a strike that lasts, and of a run that its worker cut off later,
    unless the job ran again before.
    """
    found: list[Recovery] = []
    for run in history.runs:
        again = [o.began for o in history.runs_of[run.job] if o.attempt > run.attempt]
        if not again:
            continue
        first = min(again)
        strike = _interrupted_by(history, run, first)
        if strike is None:
            continue
        moments = (strike.began, strike.ended, strike.began if run.ended is None else run.ended)
        since = max(moment for moment in moments if moment <= first)
        found.append(_recovery(history, strike, run.job, since, first))
    return found


def first_starts(history: History) -> list[Recovery]:
    """Return, for each strike after which a job waited, the time until any job started."""
    begins = [run.began for run in history.runs]
    accepted = {job: entry.at for job, entry in history.accepted.items() if entry.name in _FREE}
    waiting = sorted(
        (runs[0].began, accepted[job]) for job, runs in history.runs_of.items() if job in accepted
    )
    # When the first of those was accepted that ran at a place of this list or later.
    earliest = list(accumulate((at for _, at in reversed(waiting)), min))[::-1]
    found: list[Recovery] = []
    for strike in history.strikes:
        place = bisect_left(waiting, (strike.ended, 0.0))
        if strike.number and (strike.pids or strike.touches_all) and place < len(waiting):
            first = begins[bisect_left(begins, strike.ended)]
            since = min(max(strike.ended, earliest[place]), first)
            made = _recovery(history, strike, "", since, first)
            found.append(replace(made, seconds=first - strike.ended))
    return found


def _recovery(history: History, strike: Strike, job: str, since: float, at: float) -> Recovery:
    later = [each.ended for each in history.strikes if since < each.began < at and each.number]
    return Recovery(
        strike=strike.number,
        job=job,
        seconds=at - since,
        at=at,
        since=min(max([since, *later]), at),
    )


def _interrupted_by(history: History, run: Run, until: float) -> Strike | None:
    """Return the last strike up to a moment that hit the process of a run, and cut it off."""
    if run.is_whole or (run.is_failed and run.name in _FAIL_BY_THEMSELVES):
        return None
    for strike in reversed(history.strikes):
        if not strike.number or not run.began <= strike.began <= until:
            continue
        is_hit = run.pid in strike.pids or (strike.touches_all and run.ended is not None)
        if is_hit and (run.ended is None or strike.began <= run.ended):
            return strike
    return None


def percentile(values: Sequence[float], part: float) -> float:
    """Return the value that this part of all values does not exceed; 0.0 for none."""
    if not values:
        return 0.0
    ordered = sorted(values)
    return ordered[max(math.ceil(part * len(ordered)) - 1, 0)]


def work_goes_on(history: History) -> Finding:
    """Judge that interrupted jobs ran again, and others started, within two leases of each fault.

    The time in which processes waited for a CPU does not count.
    """
    again, starts = recoveries(history), first_starts(history)
    promised = _LEASES * history.lease
    found = [*again, *starts]
    wrong = list(_violations(history, found, promised))
    late = sum(each.seconds > promised for each in found)
    parts = [
        f"{name} {_figures([each.seconds for each in some])}"
        for name, some in (("interrupted jobs again", again), ("first start", starts))
        if some
    ]
    if parts:
        excused = f"{late} late, {late - len(wrong)} of them excused" if late else "none late"
        parts.append(f"promised {promised:g} s; {excused}")
    return Finding(checked=len(found), violations=wrong, note="; ".join(parts))


def _violations(
    history: History, found: Sequence[Recovery], promised: float
) -> Iterator[Violation]:
    allowed = promised + _STARTS * history.start_seconds
    for each in found:
        if each.job and history.runs_of[each.job][0].name in _WAIT_FOR_LIMITS:
            continue  # They also wait for the tokens of others.
        seconds = history.cpu_seconds(each.since, each.at)
        if seconds > allowed:
            what = "ran again" if each.job else "the first job started"
            after = f"fault {each.strike}" if each.job else "its end"
            problem = f"{what} {each.seconds:.1f} s after {after}; promised: {promised:g} s"
            yield Violation(subject=each.job or f"fault {each.strike}", problem=problem)


def _figures(times: Sequence[float]) -> str:
    return f"p50 {percentile(times, 0.5):.2f} s, max {max(times):.2f} s"
