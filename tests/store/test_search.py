"""Whatever a payload has, the stores that search in SQL find what the core says."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.support.clocked_stores import Clocked, opened
from windlass.app.enqueueing.id_generator import IdGenerator
from windlass.core.jobs.job import TAGS, Job, NewJob
from windlass.core.jobs.queries import JobFilter
from windlass.core.search.matching import matches
from windlass.core.search.scan import Budget
from windlass.core.search.terms import Field, Term, Value
from windlass.store.protocol import Store
from windlass.store.sqlite import SqliteStore

IDS = IdGenerator()
NAMES = st.sampled_from(
    ["a", "b", "", "a.b", '"', "\\", "'", "0", "-1", "+1", " 1", "é", "%s", "$"]
)
TEXTS = st.one_of(
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=3),
    st.sampled_from(["1", "1.0", "true", "null", "a,b", "*", "{}", "[]", "-0"]),
)
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**25), 10**25),
    st.floats(allow_nan=False, allow_infinity=False),
    TEXTS,
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=3)),
    max_leaves=6,
)
DOCUMENTS = st.dictionaries(NAMES, VALUES, max_size=4)
PATHS = st.lists(NAMES, min_size=1, max_size=3).map(tuple)
WANTED = st.one_of(TEXTS, st.integers(-2, 2).map(str), LEAVES.map(json.dumps))


@st.composite
def terms(draw: st.DrawFn, document: Any) -> Term:
    """Draw a term, mostly about a value that a document has."""
    field = draw(st.sampled_from([Field.PAYLOAD] * 4 + [Field.HEADER, Field.TAG]))
    path, wanted = draw(PATHS) if field is Field.PAYLOAD else (draw(NAMES),), WANTED
    if field is Field.PAYLOAD and draw(st.integers(0, 3)):
        path, leaf = draw(places(document))
        text = leaf if isinstance(leaf, str) else json.dumps(leaf)
        wanted = st.one_of(st.just(text), st.just(text[:1]), WANTED)
    if field is Field.TAG:
        wanted = wanted.filter(bool)  # The parser refuses an empty one.
    values = st.lists(st.builds(Value, wanted, st.booleans()), min_size=1, max_size=2)
    return Term(
        field=field,
        path=() if field is Field.TAG else path,
        values=tuple(draw(values)),
        negated=draw(st.booleans()),
    )


@st.composite
def places(draw: st.DrawFn, value: Any) -> tuple[tuple[str, ...], Any]:
    """Draw a path into a value, and what is there."""
    path: list[str] = []
    while isinstance(value, dict | list) and value:
        if isinstance(value, dict):
            path.append(draw(st.sampled_from(sorted(value))))
            value = value[path[-1]]
        else:
            index = draw(st.integers(-len(value), len(value) - 1))
            path.append(draw(st.sampled_from([f"{index}", f"{index:+}", f" {index}", f"{index}x"])))
            value = value[index]
    return tuple(path) or ("a",), value


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[NewJob], list[Term]]:
    documents = draw(st.lists(DOCUMENTS, min_size=1, max_size=8))
    jobs = []
    for document in documents:
        tags = draw(st.one_of(st.none(), TEXTS))
        headers = draw(st.dictionaries(NAMES, TEXTS, max_size=2))
        jobs.append(
            NewJob(
                id=IDS.next(),
                kind="work",
                payload=json.dumps(document, ensure_ascii=draw(st.booleans())).encode(),
                headers=headers if tags is None else headers | {TAGS: tags},
            )
        )
    return jobs, [draw(terms(draw(st.sampled_from(documents)))) for _ in range(8)]


quickly = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    # Shrinking on a server takes longer than a test may; a case is small as it is.
    phases=(Phase.reuse, Phase.generate),
)


async def check(store: Store, jobs: list[NewJob], searches: list[Term]) -> None:
    await store.enqueue(jobs)
    for term in searches:
        which = JobFilter(terms=(term,), first=jobs[0].id, last=jobs[-1].id)
        every = await store.find(JobFilter(first=which.first, last=which.last), limit=100)
        meant = [job.id for job in every.jobs if _fits(which, job)]
        page = await store.find(which, limit=100, budget=Budget(rows=100, seconds=60))
        assert [job.id for job in page.jobs] == meant, (str(term), _payloads(every.jobs))


def _fits(which: JobFilter, job: Job) -> bool:
    return matches(which, job, job.created_at)


def _payloads(jobs: Any) -> dict[UUID, bytes]:
    return {job.id: job.payload for job in jobs}


@pytest.fixture(scope="module")
def sqlite_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("search") / "jobs.db"


@quickly
@given(case=cases())
def test_sqlite_finds_what_the_core_says(
    sqlite_file: Path, case: tuple[list[NewJob], list[Term]]
) -> None:
    async def run() -> None:
        store = SqliteStore(sqlite_file)
        try:
            await check(store, *case)
        finally:
            await store.close()

    asyncio.run(run())


@quickly
@given(case=cases())
def test_postgres_finds_what_the_core_says(
    shared_database: Clocked, case: tuple[list[NewJob], list[Term]]
) -> None:
    async def run() -> None:
        async with opened(shared_database.url) as store:
            await check(store, *case)

    asyncio.run(run())
