"""Owns the times of recovery: how soon interrupted jobs ran again, against the docs' promise."""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct

from windlass.chaos.laws.history import History, Run, Strike
from windlass.chaos.laws.verdict import Finding, Violation

_LEASES = 2.0
"""Leases within which an interrupted job runs again, counted from the end of the fault."""
_ALLOWANCE = 30.0
"""Seconds more that count as late and not as broken: the machine may be busy with other things.

Twice the time that the workers took to start is added: no recovery is faster than that where all
of them have to be started again.
"""


class Recovery(Struct, frozen=True, kw_only=True):
    """A job that a strike interrupted, and how many seconds later it ran again."""

    strike: int
    job: str
    seconds: float
    at: float
    """When it ran again."""


def recoveries(history: History) -> list[Recovery]:
    """Return, for each interrupted run whose job ran again, the time from the strike to that.

    A strike that lasts, like a stopped process or network, is counted from its end if the job did
    not run again before.
    """
    found: list[Recovery] = []
    for run in history.runs:
        strike = _interrupted_by(history, run)
        if strike is None:
            continue
        again = [o.began for o in history.runs_of[run.job] if o.attempt > run.attempt]
        if again:
            first = min(again)
            since = strike.ended if first >= strike.ended else strike.began
            seconds = max(first - since, 0.0)
            found.append(Recovery(strike=strike.number, job=run.job, seconds=seconds, at=first))
    return found


def _interrupted_by(history: History, run: Run) -> Strike | None:
    """Return the first strike that hit the process of a run while it ran, and cut it off."""
    if run.is_whole:
        return None
    for strike in history.strikes:
        if run.pid in strike.pids and strike.began >= run.began:
            is_over = run.ended is not None and run.ended < strike.began
            return None if is_over else strike
    return None


def percentile(values: Sequence[float], part: float) -> float:
    """Return the value that this part of all values does not exceed; 0.0 for none."""
    if not values:
        return 0.0
    ordered = sorted(values)
    return ordered[max(math.ceil(part * len(ordered)) - 1, 0)]


def interrupted_jobs_run_again(history: History) -> Finding:
    """Judge that interrupted jobs ran again within two leases; a busy machine has an allowance."""
    found = recoveries(history)
    promised = _LEASES * history.lease
    times = [each.seconds for each in found]
    allowed = _ALLOWANCE + 2 * history.start_seconds
    wrong = [
        Violation(
            subject=each.job,
            problem=f"ran again {each.seconds:.1f} s after fault {each.strike}; promised: "
            f"{promised:.0f} s",
        )
        for each in found
        if each.seconds > promised + allowed
    ]
    late = sum(seconds > promised for seconds in times)
    note = (
        f"p50 {percentile(times, 0.5):.2f} s, max {max(times, default=0.0):.2f} s, promised "
        f"{promised:.0f} s; {late} late, of which {len(wrong)} by more than the {allowed:.0f} s "
        "allowed to a busy machine"
        if times
        else ""
    )
    return Finding(checked=len(found), violations=wrong, note=note)
