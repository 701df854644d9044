"""Which cases of the torture list are tested on which store, and which a store cannot have.

A test says in its docstring which cases it is about: `Case 7.`, `Cases 2 and 3.`
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

HERE = Path(__file__).parent
TESTS = HERE.parent
PLACES = (HERE, TESTS / "store", *(TESTS / "store").glob("[a-z]*/"), TESTS / "system")
"""Where tests of cases are."""
SQLITE, POSTGRES = "SQLite", "PostgreSQL"
RUNTIME = [*range(1, 34), 35, 36, 37, 46, 47]
"""The cases that a worker has to survive on every store there is."""
IMPOSSIBLE = {
    (20, SQLITE): "a file has no backends that somebody could terminate",
    (21, SQLITE): "a file has no server that restarts; its processes are killed in case 1",
    (22, SQLITE): "there is no network between a process and its file",
    (23, SQLITE): "nobody listens: a worker looks at the file itself",
    (25, SQLITE): "there is no connection that somebody could pool",
    (26, SQLITE): "a file has no replica that takes its place",
    (27, SQLITE): "there is no pool: a handler's transactions are its own connections",
    (28, SQLITE): "writers take turns, so that no two can wait for each other; see case 43",
    (29, SQLITE): "what has passed leaves no dead rows to walk past; its log is case 44",
    (30, SQLITE): "its planner has no flags that somebody could set for us",
    (32, SQLITE): "the clock of a file is that of its host: all who use it have the same",
    (33, SQLITE): "it takes part in no transaction of a caller, and says so",
}
"""What a store cannot have, and why."""
FIXTURES = {
    name: stores
    for names, stores in (
        ("yard bed open_stores", {SQLITE, POSTGRES}),
        ("sqlite_yard path", {SQLITE}),
        ("postgres_yard far_yard own_yard clogged_yard", {POSTGRES}),
        ("migrated_url postgres_url url arena", {POSTGRES}),
    )
    for name in names.split()
}
"""On which stores a test is tried that asks for one of these, unless a mark of it says less."""
STORES = {"sqlite": SQLITE, "postgres": POSTGRES}
MARKS = {f"on_{name}": {store} for name, store in STORES.items()}
_CASES = re.compile(r"\bCases? (\d+(?:(?:, | and )\d+)*)")


@cache
def written(*places: Path) -> list[ast.FunctionDef]:
    """Return every test of some directories."""
    return [
        node
        for place in places
        for file in sorted(place.glob("test_*.py"))
        for node in ast.parse(file.read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]


def cases_of(test: ast.FunctionDef) -> set[int]:
    told = _CASES.findall(ast.get_docstring(test) or "")
    return {int(number) for each in told for number in re.findall(r"\d+", each)}


def stores_of(test: ast.FunctionDef) -> set[str]:
    """Say on which stores a test runs, by the fixture that it asks for, and by its marks."""
    asked = {argument.arg for argument in test.args.args}
    able = set[str]().union(*(FIXTURES.get(name, set()) for name in asked))
    for mark in test.decorator_list:
        able &= told_by(mark, able)
    return able


def told_by(mark: ast.expr, able: set[str]) -> set[str]:
    """Say which stores a mark leaves: `on_sqlite`, `parametrize("yard", ["postgres"])`."""
    match mark:
        case ast.Name(id=name):
            return MARKS.get(name, able)
        case ast.Call(args=[ast.Constant(value="yard" | "bed"), ast.List(elts=chosen), *_]):
            names = [each.value for each in chosen if isinstance(each, ast.Constant)]
            return {STORES[str(name)] for name in names if name in STORES}
    return able


@pytest.mark.parametrize("case", RUNTIME)
def test_every_case_is_tested_on_each_store_that_can_have_it(case: int) -> None:
    tested: dict[int, set[str]] = defaultdict(set)
    for test in written(*PLACES):
        for each in cases_of(test):
            tested[each] |= stores_of(test)
    impossible = {store for number, store in IMPOSSIBLE if number == case}
    assert tested[case] == {SQLITE, POSTGRES} - impossible


TRIED_BY_CHAOS = {
    "test_twenty_faults_lose_nothing_repeat_no_effect_and_charge_nobody",
    "test_without_the_fence_the_same_storm_is_seen_by_the_ledger",
}
"""What test_chaos_checker.py tries on a server at every landing: storms, with and without faults
in Windlass itself.
"""


def test_a_landing_tries_on_a_server_whatever_can_be_tried_there() -> None:
    """Prevents the store that scales out from being tried only when somebody thinks of it."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--collect-only",
        "--quiet",
        "-m",
        "not again",
        str(HERE),
    ]
    done = subprocess.run(
        command, cwd=TESTS.parent, capture_output=True, text=True, timeout=100, check=False
    )
    tried: dict[str, list[str]] = defaultdict(list)
    for name, ids in re.findall(r"::(test_\w+)(.*)", done.stdout):
        tried[name].append(ids)
    able = {test.name: stores_of(test) for test in written(HERE) if POSTGRES in stores_of(test)}
    assert len(able) > 80, "they are found by their fixtures"
    left_out = [
        name
        for name, stores in able.items()
        if not any(SQLITE not in stores or "postgres" in each for each in tried[name])
    ]
    assert set(left_out) == TRIED_BY_CHAOS, done.stderr
