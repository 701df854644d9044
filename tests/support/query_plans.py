"""Owns looking over the planner's shoulder: which plans were made, and how many rows they touched.

The hot path is SQL inside functions, which EXPLAIN does not show, and the wheel has no
auto_explain. So the server prints the plans that it makes (debug_print_plan) as notices, its
statistics say how many rows each index gave, and EXPLAIN how many pages were touched in all.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import psycopg
from psycopg.errors import Diagnostic

_SCANS = {
    "SEQSCAN": "Seq Scan",
    "SAMPLESCAN": "Sample Scan",
    "INDEXSCAN": "Index Scan",
    "INDEXONLYSCAN": "Index Only Scan",
    "BITMAPHEAPSCAN": "Bitmap Heap Scan",
    "BITMAPINDEXSCAN": "Bitmap Index Scan",
    "TIDSCAN": "Tid Scan",
    "TIDRANGESCAN": "Tid Range Scan",
}
_OTHERS = {"SORT": "Sort", "INCREMENTALSORT": "Incremental Sort"}
_NODE = re.compile(r"\{(" + "|".join([*_SCANS, *_OTHERS]) + r") ")
_WATCH = "SET debug_print_plan = on; SET debug_pretty_print = off; SET client_min_messages = log"
_TOUCHED = """
SELECT relname, pg_stat_get_xact_tuples_returned(oid)
FROM pg_class WHERE relnamespace = 'windlass'::regnamespace AND relkind IN ('r', 'i')
"""


class Step(NamedTuple):
    """A step of a plan: how it walks, where, and by which index; a sort has no place."""

    how: str
    table: str = ""
    by: str = ""


@dataclass(kw_only=True)
class Seen:
    """What a call did: its rows, the steps of the plans made for it, and the rows touched."""

    rows: list[Any]
    steps: set[Step]
    """Empty if the plans had been made before."""
    touched: Mapping[str, int]
    """Rows that an index, or a scan of a whole table, gave; for each that gave any."""
    pages: int = 0

    def on(self, table: str) -> set[Step]:
        """Return the steps that walk a table."""
        return {step for step in self.steps if step.table == table}

    @property
    def sorts(self) -> bool:
        """Whether anything is sorted."""
        return any("Sort" in step.how for step in self.steps)


@dataclass
class Watch:
    """A connection on which calls are watched, each in a transaction that is rolled back."""

    db: psycopg.Connection[Any]
    _plans: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.db.add_notice_handler(self._take)
        self.db.execute(_WATCH)
        names = "SELECT oid, relname FROM pg_class WHERE relnamespace = 'windlass'::regnamespace"
        self._names = dict(self.db.execute(names).fetchall())

    def call(self, statement: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> Seen:
        """Call something twice: to see its plans and rows, and to count its pages."""
        seen = self._call(statement, values)
        seen.pages = self._pages(statement, values)
        return seen

    def _call(self, statement: str, values: Sequence[Any] | Mapping[str, Any]) -> Seen:
        with self.db.transaction(force_rollback=True):
            before = self._touched()
            self._plans.clear()
            rows = self.db.execute(statement.encode(), values).fetchall()
            plans = list(self._plans)
            after = self._touched()
        given = {name: after[name] - before[name] for name in after}
        return Seen(
            rows=rows,
            steps={step for plan in plans for step in steps_of(plan, self._names)},
            touched={name: count for name, count in given.items() if count},
        )

    def _touched(self) -> dict[str, int]:
        return dict(self.db.execute(_TOUCHED).fetchall())

    def _pages(self, statement: str, values: Sequence[Any] | Mapping[str, Any]) -> int:
        explain = f"EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) {statement}"
        with self.db.transaction(force_rollback=True):
            ((answer,),) = self.db.execute(explain.encode(), values).fetchall()
        plan = answer[0]["Plan"]
        return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])

    def _take(self, notice: Diagnostic) -> None:
        if notice.message_primary == "plan:":
            self._plans.append((notice.message_detail or "").replace("\n", " "))


def steps_of(plan: str, names: Mapping[int, str]) -> list[Step]:
    """Read the steps that matter from a plan as the server prints it."""
    entries = plan.partition(":rtable (")[2].split("{RANGETBLENTRY ")[1:]
    relids = [re.search(r":rtekind 0 .*?:relid (\d+)", entry) for entry in entries]
    tables = ["" if relid is None else names.get(int(relid[1]), "?") for relid in relids]
    steps = []
    for node in _NODE.finditer(plan):
        if node[1] in _OTHERS:
            steps.append(Step(_OTHERS[node[1]]))
            continue
        place = re.compile(r":scan\.scanrelid (\d+)(?: :indexid (\d+))?").search(plan, node.end())
        assert place is not None, plan
        index = "" if place[2] is None else names.get(int(place[2]), "?")
        steps.append(Step(_SCANS[node[1]], tables[int(place[1]) - 1], index))
    return steps
