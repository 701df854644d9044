"""Which cases of the torture list are tested on which store, and which a store cannot have.

A test says in its docstring which cases it is about: `Case 7.`, `Cases 2 and 3.`
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SQLITE, POSTGRES = "SQLite", "PostgreSQL"
RUNTIME = [*range(1, 19), 20, 21, 22, 23, 26, 27, 35, 36, 37, 46]
"""The cases that a worker has to survive on every store there is."""
IMPOSSIBLE = {
    (20, SQLITE): "a file has no backends that somebody could terminate",
    (21, SQLITE): "a file has no server that restarts; its processes are killed in case 1",
    (22, SQLITE): "there is no network between a process and its file",
    (23, SQLITE): "nobody listens: a worker looks at the file itself",
    (26, SQLITE): "a file has no replica that takes its place",
    (27, SQLITE): "there is no pool: a handler's transactions are its own connections",
}
"""What a store cannot have, and why."""
_CASES = re.compile(r"\bCases? (\d+(?:(?:, | and )\d+)*)")


@cache
def written() -> list[ast.FunctionDef]:
    """Return every test of this directory."""
    return [
        node
        for file in sorted(HERE.glob("test_*.py"))
        for node in ast.parse(file.read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]


def cases_of(test: ast.FunctionDef) -> set[int]:
    told = _CASES.findall(ast.get_docstring(test) or "")
    return {int(number) for each in told for number in re.findall(r"\d+", each)}


def stores_of(test: ast.FunctionDef) -> set[str]:
    """Say on which stores a test runs, by the yard that it asks for."""
    asked = {argument.arg for argument in test.args.args}
    marks = {ast.unparse(mark) for mark in test.decorator_list}
    if "yard" in asked:
        return {SQLITE} if "on_sqlite" in marks else {SQLITE, POSTGRES}
    if "open_stores" in asked:
        return {SQLITE, POSTGRES}
    if "sqlite_yard" in asked:
        return {SQLITE}
    on_server = {"postgres_yard", "far_yard", "own_yard", "migrated_url", "url"}
    return {POSTGRES} if asked & on_server else set()


@pytest.mark.parametrize("case", RUNTIME)
def test_every_case_is_tested_on_each_store_that_can_have_it(case: int) -> None:
    tested: dict[int, set[str]] = defaultdict(set)
    for test in written():
        for each in cases_of(test):
            tested[each] |= stores_of(test)
    impossible = {store for number, store in IMPOSSIBLE if number == case}
    assert tested[case] == {SQLITE, POSTGRES} - impossible
