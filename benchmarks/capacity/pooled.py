"""Owns what PgBouncer changes, where it is installed: connections of the server, and the cost."""

from __future__ import annotations

from benchmarks.capacity.crew import crew
from benchmarks.capacity.sizes import Survey
from benchmarks.capacity.table import Cell, Table
from benchmarks.capacity.watch import serving, watch
from tests.support.postgres.wheel import ServerFailed
from tests.system.bouncer import PgBouncer

_HEAD = (
    "two processes, no-ops",
    "jobs/s",
    "worker CPU, µs/job",
    "server CPU, µs/job",
    "connections of the server",
)
_PROCESSES = 2


def pgbouncer(survey: Survey) -> list[Table]:
    """Run no-ops straight and through a pooler; nothing is told where there is none."""
    rows: list[list[Cell]] = []
    try:
        with survey.site.pooler() as bouncer:
            survey.tell("PgBouncer")
            rows.append(_row(survey, "directly", None))
            rows.append(_row(survey, "through PgBouncer, except for wake-ups", bouncer))
    except ServerFailed as error:
        survey.tell(f"PgBouncer is left out: {error}")
        return []
    return [Table(name="pgbouncer", head=_HEAD, rows=rows)]


def _row(survey: Survey, shown: str, bouncer: PgBouncer | None) -> list[Cell]:
    sizes = survey.sizes
    jobs = sizes.enough(sizes.rates)
    with survey.site.postgres() as yard:
        url = yard.url if bouncer is None else bouncer.through(yard.url)
        with crew(url, listen_url=yard.url, processes=_PROCESSES) as it:
            serving(yard, it, _PROCESSES)
            found = watch(yard, it, jobs=jobs, seconds=sizes.seconds, rounds=sizes.rounds)
            used = len(yard.backends())
    whole = found.whole
    return [shown, found.rates, whole.worker_micros, whole.server_micros, used]
