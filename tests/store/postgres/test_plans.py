"""The hot path walks its indexes, whatever is in the tables, and touches no more than it was asked.

It is SQL in functions that bring their own planner settings; what is pinned here is what the
planner did, not what was written: the plans that it made, the rows that each index gave, and the
pages that were touched.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.parse import quote
from uuid import UUID

import psycopg
import pytest

from tests.support.clocked_stores import migrate
from tests.support.postgres.fixtures import each_version
from tests.support.postgres.server import FAST, Server
from tests.support.query_plans import Seen, Step, Watch

LANES = [(f"kind-{kind}", priority) for kind in range(3) for priority in (0, 5)]
RUNNING = 200
ASKED = 50
WORKERS = """
INSERT INTO windlass.workers (id, info, pulse, lease, started_at, last_seen, since, lease_until,
                              ended)
SELECT id, '{}', '{}', '1 hour', now(), now(), now() - interval '1 day', now() + interval '1 hour',
       id = 'lost'
FROM unnest(ARRAY['alive', 'lost']) AS id
"""
JOBS = """
INSERT INTO windlass.jobs (id, kind, priority, state, payload, due_at, worker, token, started_at)
SELECT lpad(to_hex(n), 32, '0')::uuid, 'kind-' || n %% 3, n %% 2 * 5,
       CASE WHEN runs THEN 'running' WHEN n %% 5 = 4 THEN 'scheduled' ELSE 'pending' END, '{}',
       now() + CASE WHEN n %% 5 = 4 AND n > 1000 THEN interval '1 day' ELSE interval '-1 hour' END
           + n * interval '1 microsecond',
       CASE WHEN runs THEN CASE WHEN n %% 10 = 0 THEN 'lost' ELSE 'alive' END END,
       CASE WHEN runs THEN 7 END, CASE WHEN runs THEN now() END
FROM (SELECT n, n > %(rows)s - least(%(rows)s / 2, %(running)s) AS runs
      FROM generate_series(1, %(rows)s) AS n) AS numbers
"""
"""Six lanes of pending jobs, one in five scheduled and a few of those due, some that run."""


class Call(NamedTuple):
    """A call of the hot path, and how it may walk the jobs."""

    statement: str
    values: tuple[Any, ...]
    walks: set[Step]
    gives: dict[str, int]
    """How many rows an index may give, at most."""
    may_sort: bool = False


def calls(rows: int) -> dict[str, Call]:
    """Return the calls for a table that was filled with so many rows."""
    count = len(LANES)
    running = min(rows // 2, RUNNING)
    held = [UUID(int=n) for n in range(rows - running + 1, rows + 1) if n % 10]
    done, others = held[:ASKED], held[ASKED : 2 * ASKED]
    ends = ("dead", "cancelled", "pending", "scheduled")
    moves = [
        {"id": str(job), "token": 7, "state": ends[n % 4], "failures": 0, "crashes": 0}
        for n, job in enumerate(others or held)
    ]
    by_id = Step("Index Scan", "jobs", "jobs_pkey")
    by_place = Step("Tid Scan", "jobs")
    asks = (
        ["default"] * count,
        [kind for kind, _ in LANES],
        [priority for _, priority in LANES],
        [""] * count,
        ["-infinity"] * count,
        [0] * count,
        [1] * count,
        [ASKED],
        [*range(1, count + 1)],
        [ASKED] * count,
    )
    return {
        "claim": Call(
            "SELECT id FROM windlass.claim('alive', 1, %s::text[], %s::text[], %s::integer[], "
            "%s::text[], %s::timestamptz[], %s::bigint[], %s::integer[], %s::integer[], "
            "%s::integer[], %s::integer[], true)",
            asks,
            {
                Step("Index Scan", "jobs", "jobs_lanes"),
                # Of ordered lanes: whether a job is placed ahead of the clock.
                Step("Index Only Scan", "jobs", "jobs_lanes"),
                by_place,
            },
            {"jobs_lanes": ASKED},
        ),
        "claim in order": Call(
            "SELECT id FROM windlass.claim('alive', 1, %s::text[], %s::text[], %s::integer[], "
            "%s::text[], %s::timestamptz[], %s::bigint[], %s::integer[], %s::integer[], "
            "%s::integer[], %s::integer[], true)",
            (*asks[:-1], [-1] * count),
            set(),  # Planned with the claim before it.
            {"jobs_lanes": count},
        ),
        "complete": Call(
            "SELECT windlass.complete(%s::uuid[], %s::bigint[], NULL)",
            (done, [7] * len(done)),
            {by_id},
            {"jobs_pkey": len(done)},
        ),
        "settle": Call(
            "SELECT unnest(windlass.settle(%s::text::json))",
            (json.dumps(moves),),
            {by_id},
            # To lock a job, and again to move it.
            {"jobs_pkey": 2 * len(moves)},
        ),
        "rescue": Call(
            "SELECT id FROM windlass.rescue('alive', 2, 10)",
            (),
            {Step("Index Scan", "jobs", "jobs_held"), by_id},
            # Of every worker, with what earlier calls left behind.
            {"jobs_held": 10 * running, "jobs_pkey": 10 * 10},
            may_sort=True,
        ),
        "promote": Call(
            "SELECT windlass.promote(%s)",
            (ASKED,),
            {Step("Index Scan", "jobs", "jobs_due"), by_place},
            {"jobs_due": ASKED},
        ),
        "sweep": Call(
            "SELECT queue FROM windlass.sweep()",
            (),
            {
                Step("Index Only Scan", "jobs", "jobs_lanes"),
                Step("Index Only Scan", "jobs", "jobs_due"),
            },
            {"jobs_lanes": 10 * ASKED, "jobs_due": 2 * ASKED},
        ),
        "sweep of some queues": Call(
            "SELECT queue FROM windlass.sweep_queues(ARRAY['default', 'none'])",
            (),
            {
                Step("Index Only Scan", "jobs", "jobs_lanes"),
                Step("Index Only Scan", "jobs", "jobs_due"),
            },
            {"jobs_lanes": 10 * ASKED, "jobs_due": 2 * ASKED},
        ),
        "recall": Call(
            "SELECT windlass.recall('0', '0', '1 minute', '{}')",
            (),
            # By its lanes: to find jobs that are ahead, of which there are none, and move them.
            {Step("Index Scan", "jobs", "jobs_lanes"), by_id},
            {"jobs_lanes": 10 * ASKED, "jobs_due": 2 * ASKED},
            may_sort=True,
        ),
    }


@contextmanager
def watched(url: str, **flags: str) -> Iterator[Watch]:
    options = quote(" ".join(f"-c {name}={value}" for name, value in flags.items()))
    with psycopg.connect(f"{url}?options={options}", autocommit=True) as db:
        yield Watch(db)


def fill(url: str, rows: int) -> None:
    with psycopg.connect(url) as db:
        db.execute(JOBS, {"rows": rows, "running": RUNNING})


DELETED = 20


def check(name: str, call: Call, seen: Seen, *, planned: bool = True) -> None:
    """See that a call walked as it should, and touched what it was asked for."""
    shown = f"{name}: {seen}"
    if planned:
        assert seen.on("jobs") == call.walks, shown
        assert call.may_sort or not seen.sorts, shown
    else:
        assert seen.steps == set(), f"planned anew: {shown}"
    on_jobs = {place: given for place, given in seen.touched.items() if place.startswith("jobs")}
    assert on_jobs.keys() <= call.gives.keys(), f"it walked elsewhere: {shown}"
    # Whatever was deleted a moment ago may still be in the index.
    most = {place: given + DELETED for place, given in call.gives.items()}
    assert {place for place in on_jobs if on_jobs[place] > most[place]} == set(), shown
    # Four indexes and a table are four levels deep at most; a page is touched more than once.
    assert seen.pages <= 100 + 25 * max(ASKED, RUNNING if name == "rescue" else 0), shown


def check_answers(seen: dict[str, Seen], rows: int) -> None:
    """See that the calls did what they are for; else it would be no wonder that it cost little."""
    assert seen["complete"].rows == [(None,)], "all were completed"
    assert seen["promote"].rows[0][0] == min(ASKED, rows // 10)
    assert len(seen["claim"].rows) == min(ASKED, 2 * rows // 5)
    assert len(seen["settle"].rows) == min(ASKED, 2 * rows // 5)
    assert len(seen["rescue"].rows) == min(10, rows // 10)
    assert len(seen["sweep"].rows) >= 4


@pytest.mark.parametrize("rows", [10, 100_000, pytest.param(1_000_000, marks=pytest.mark.long)])
def test_the_hot_path_walks_its_indexes_however_many_jobs_there_are(
    rows: int, migrated_url: str
) -> None:
    with psycopg.connect(migrated_url) as db:
        db.execute(WORKERS)
    fill(migrated_url, rows)
    seen = {}
    with watched(migrated_url) as watch:
        for name, call in calls(rows).items():
            seen[name] = watch.call(call.statement, call.values)
            check(name, call, seen[name])
    check_answers(seen, rows)


@pytest.fixture(params=each_version())
def quiet_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """A database with the schema, on a server that nobody else uses.

    Whoever changes many catalogs at once, in whatever database, has every session of the server
    that is idle forget its plans; other tests do so whenever they make a schema.
    """
    with Server(version=request.param, settings=FAST) as server:
        url = server.create_database("quiet")
        migrate(url)
        yield url


def test_plans_that_were_made_for_an_empty_table_serve_a_full_one(quiet_url: str) -> None:
    """Prevents: a worker that started before its queue filled up scans all of it for every job."""
    rows = 100_000
    with psycopg.connect(quiet_url) as db:
        db.execute(WORKERS)
    seen = {}
    with watched(quiet_url) as watch:
        for name, call in calls(rows).items():
            early = watch.call(call.statement, call.values)
            if name != "settle":
                assert early.on("jobs") <= call.walks, f"{name}: {early}"
        # What is planned only when there is a job for it has to meet one, too.
        fill(quiet_url, 10)
        for call in calls(10).values():
            watch.call(call.statement, call.values)
        watch.db.execute("DELETE FROM windlass.jobs")
        fill(quiet_url, rows)
        for name, call in calls(rows).items():
            seen[name] = watch.call(call.statement, call.values)
            check(name, call, seen[name], planned=False)
    check_answers(seen, rows)


HOSTILE = {
    "enable_indexscan": "off",
    "enable_seqscan": "on",
    "enable_bitmapscan": "on",
    "enable_tidscan": "off",
    "enable_sort": "on",
    "enable_nestloop": "off",
    "enable_hashjoin": "on",
    "plan_cache_mode": "force_custom_plan",
    "random_page_cost": "1000",
    "jit": "on",
    "jit_above_cost": "0",
    "default_transaction_isolation": "read\\ committed",
}
"""What somebody may have set for the whole server, each against us."""


def test_no_flag_of_the_planner_changes_how_the_hot_path_walks(migrated_url: str) -> None:
    rows = 10_000
    with psycopg.connect(migrated_url) as db:
        db.execute(WORKERS)
    fill(migrated_url, rows)
    seen = {}
    with watched(migrated_url, **HOSTILE) as watch:
        assert watch.db.execute("SHOW enable_indexscan").fetchone() == ("off",)
        for name, call in calls(rows).items():
            seen[name] = watch.call(call.statement, call.values)
            check(name, call, seen[name])
    check_answers(seen, rows)


@pytest.mark.parametrize("flag", ["enable_indexscan", "enable_tidscan", "enable_bitmapscan"])
def test_a_claim_takes_no_more_than_it_was_asked_for_whatever_plan_is_disabled(
    flag: str, migrated_url: str
) -> None:
    with psycopg.connect(migrated_url) as db:
        db.execute(WORKERS)
    fill(migrated_url, 2_000)
    claim = calls(2_000)["claim"]
    with watched(migrated_url, **{flag: "off", "enable_seqscan": "on"}) as watch:
        for round_ in range(1, 4):
            taken = watch.db.execute(claim.statement.encode(), claim.values).fetchall()
            assert len(taken) == ASKED
            running = watch.db.execute("SELECT count(*) FROM windlass.jobs WHERE token = 1")
            assert running.fetchall() == [(round_ * ASKED,)]


def test_the_watch_sees_a_scan_of_the_table_and_a_sort(migrated_url: str) -> None:
    """The laws above can fail: what they rule out would be seen."""
    fill(migrated_url, 1_000)
    with watched(migrated_url) as watch:
        seen = watch.call(
            "SELECT id FROM windlass.jobs WHERE reason IS NULL ORDER BY payload::text"
        )
    assert seen.on("jobs") == {Step("Seq Scan", "jobs")}
    assert seen.sorts
    assert seen.touched == {"jobs": 1_000}
    assert seen.pages >= 10


FINISHED = """
INSERT INTO windlass.finished_jobs (seq, id, kind, state, payload, finished_at, slot)
SELECT n, gen_random_uuid(), 'work', 'completed', '{}', at, windlass.slot_of(at)
FROM (SELECT n, now() - CASE WHEN n <= 10 THEN interval '60 days' ELSE n * interval '15 s' END AS at
      FROM generate_series(1, 40000) AS n) AS jobs
"""


@pytest.mark.parametrize(("kept", "pruned"), [("45 days", 10), ("61 days", 0)])
def test_a_prune_row_by_row_scans_no_day_of_the_ring(
    kept: str, pruned: int, migrated_url: str
) -> None:
    """Prevents: every prune reads every finished job, to find that none is old enough."""
    with psycopg.connect(migrated_url, autocommit=True) as db:
        db.execute(FINISHED)
        db.execute("VACUUM ANALYZE windlass.finished_jobs")
    statement = "SELECT windlass.prune(%s, NULL, '1 hour', '1 day', 1000)"
    with watched(migrated_url) as watch:
        seen = watch.call(statement, [kept])
    assert seen.rows == [(pruned,)]
    days = {step for step in seen.steps if step.table.startswith("finished_jobs_")}
    assert {step.how for step in days} <= {"Bitmap Heap Scan", "Bitmap Index Scan", "Tid Scan"}
    assert [place for place in seen.touched if re.fullmatch(r"finished_jobs_\d+", place)] == []
