"""Owns the facts of a report, which become text, JSON and a page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime

from msgspec import Struct

from windlass.chaos.laws.checker import failures
from windlass.chaos.laws.history import History
from windlass.chaos.laws.recovery import Recovery, first_starts, percentile, recoveries
from windlass.chaos.laws.verdict import Verdict
from windlass.chaos.observation.memory import WorkerMemory
from windlass.chaos.options import Options
from windlass.chaos.plan import FaultKind
from windlass.settings.url_masking import redact_url
from windlass.version import __version__


class StrikeReport(Struct, frozen=True, kw_only=True):
    """A thrown fault, in seconds since the storm began, and the recovery from it."""

    number: int
    fault: str
    began: float
    ended: float
    note: str
    interrupted: int
    """Jobs whose run it cut off, and that ran again."""
    recovery_p50: float
    recovery_max: float
    back: tuple[float, ...]
    """When the interrupted jobs ran again."""
    first_start: float | None = None
    """Seconds from its end until a job started; None: none was waiting."""
    first_start_at: float | None = None


class Report(Struct, frozen=True, kw_only=True):
    """Everything that a run has shown."""

    version: str
    ok: bool
    store: str
    command: str
    seed: int
    started_at: datetime
    seconds: float
    lease: float
    accepted: int
    refused: int
    runs: int
    outcomes: dict[str, int]
    verdicts: tuple[Verdict, ...]
    strikes: tuple[StrikeReport, ...]
    impossible: dict[str, str]
    """The faults that could not be thrown, and why."""
    throughput: tuple[int, ...]
    """Handlers that came to their end, second by second."""
    memory: tuple[WorkerMemory, ...] = ()
    """The memory of worker processes, those first that lived longest."""
    is_cut_short: bool = False
    """Whether Ctrl-C ended the storm before its time."""
    directory: str = ""
    """Where ledger and logs are, if they were kept."""


def report_of(
    history: History,
    verdicts: Sequence[Verdict],
    *,
    options: Options,
    impossible: Mapping[FaultKind, str],
    began: float,
    started_at: datetime,
    memory: Sequence[WorkerMemory] = (),
    is_cut_short: bool = False,
) -> Report:
    """Put a report together."""
    entries = history.entries
    latest = max((entry.at for entry in entries), default=began)
    return Report(
        version=__version__,
        ok=not failures(verdicts),
        store=history.store,
        command=command_of(options),
        seed=options.seed,
        started_at=started_at,
        seconds=round(latest - began, 3),
        lease=history.lease,
        accepted=len(history.accepted),
        refused=sum(entry.what == "refused" for entry in entries),
        runs=len(history.runs),
        outcomes=dict(Counter(record.state for record in history.records)),
        verdicts=tuple(verdicts),
        strikes=_strikes(history, began),
        impossible={kind.value: reason for kind, reason in impossible.items()},
        throughput=_throughput(history, began, latest),
        memory=tuple(memory),
        is_cut_short=is_cut_short,
    )


def command_of(options: Options) -> str:
    """Return the command that throws the same faults again, without secrets of a URL."""
    where = f"--url '{redact_url(options.url)}'" if options.url else f"--store {options.store}"
    only = "".join(f" --only {kind}" for kind in options.only)
    return (
        f"windlass chaos {where} --seed {options.seed} --jobs {options.jobs} --faults "
        f"{options.faults} --time {options.seconds:g}s --lease {options.lease:g}s{only}"
    )


def _strikes(history: History, began: float) -> tuple[StrikeReport, ...]:
    by_strike: dict[int, list[Recovery]] = {}
    for each in recoveries(history):
        by_strike.setdefault(each.strike, []).append(each)
    starts = {each.strike: each for each in first_starts(history)}
    found = []
    for strike in history.strikes:
        start = starts.get(strike.number)
        own = by_strike.get(strike.number, [])
        times = [each.seconds for each in own]
        found.append(
            StrikeReport(
                number=strike.number,
                fault=strike.fault,
                began=round(strike.began - began, 3),
                ended=round(strike.ended - began, 3),
                note=strike.note,
                interrupted=len(own),
                recovery_p50=round(percentile(times, 0.5), 3),
                recovery_max=round(max(times, default=0.0), 3),
                back=tuple(sorted(round(each.at - began, 3) for each in own)),
                first_start=None if start is None else round(start.seconds, 3),
                first_start_at=None if start is None else round(start.at - began, 3),
            )
        )
    return tuple(found)


def _throughput(history: History, began: float, latest: float) -> tuple[int, ...]:
    counts = [0] * (int(max(latest - began, 0)) + 1)
    for run in history.runs:
        if run.is_whole and run.ended is not None and 0 <= run.ended - began < len(counts):
            counts[int(run.ended - began)] += 1
    return tuple(counts)
