"""Owns `windlass slo`: the kinds with a service-level target, and how often they missed it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from rich.text import Text

from windlass.app import Windlass
from windlass.cli import options
from windlass.cli.output import console as show
from windlass.cli.output.tables import Column, Listing
from windlass.core import documents as facts
from windlass.core.policies.slo import TARGETS, Tally, read_tally
from windlass.core.records import Json
from windlass.core.values.durations import brief, human

EXAMPLES = ("windlass slo --json",)


def slo(*, target: options.Target, as_json: options.AsJson = False) -> None:
    """List kinds with a service-level target: jobs started, how many of them late, and the last."""

    async def work(chosen: Windlass) -> tuple[Mapping[str, Json], datetime]:
        return await chosen.store.records(TARGETS), (await chosen.store.sweep()).now

    records, now = target.visit(work)
    kinds = {name.removeprefix(TARGETS): records[name] for name in sorted(records)}
    if as_json:
        show.document({"kinds": [_facts(kind, record) for kind, record in kinds.items()]})
        return
    if not kinds:
        show.note(
            "no job of a kind with a target has started; set a target with @app.job(slo='5s')"
        )
        return
    listing = Listing(
        Column("kind"),
        Column("target", number=True),
        Column("started", number=True),
        Column("late", number=True),
        Column("in time", number=True),
        Column("worst", number=True, rank=2),
        Column("last late", rank=1),
    )
    for kind, record in kinds.items():
        listing.add(show.cell(kind), *_cells(record, read_tally(record), now))
    listing.print(show.stdout())


def _cells(record: Json, tally: Tally, now: datetime) -> list[Text]:
    last = "" if tally.last is None else show.ago(tally.last.started_at, now)
    return [
        Text(human(timedelta(seconds=record["target"]))),
        show.count(tally.started),
        show.count(tally.late, "red"),
        Text(f"{_in_time(tally):.2%}"),
        Text(brief(tally.worst) if tally.late else ""),
        show.cell(last, "dim"),
    ]


def _in_time(tally: Tally) -> float:
    return 1 - tally.late / tally.started if tally.started else 1.0


def _facts(kind: str, record: Json) -> facts.Facts:
    tally = read_tally(record)
    last = tally.last
    return {
        "kind": kind,
        "target_seconds": record["target"],
        "since": record["since"],
        "started": tally.started,
        "late": tally.late,
        "worst_wait_seconds": tally.worst.total_seconds() if tally.late else None,
        "last_late": None
        if last is None
        else {
            "job": str(last.job),
            "started_at": facts.iso(last.started_at),
            "waited_seconds": last.waited.total_seconds(),
        },
    }
