"""A search goes on slice by slice: until its page is full, its budget is spent, or to the end."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.core.jobs.job import Job
from windlass.core.jobs.queries import Page
from windlass.core.jobs.states import State
from windlass.core.search.scan import Budget, Scan

AT = datetime(2026, 1, 1, tzinfo=UTC)


def job(number: int) -> Job:
    return Job(
        id=UUID(int=number),
        kind="a",
        queue="q",
        priority=0,
        key="",
        state=State.PENDING,
        payload=b"{}",
        due_at=AT,
        created_at=AT,
    )


def look(
    numbers: range, fitting: set[int], after: int | None, *, limit: int, budget: Budget | None
) -> tuple[Page, int]:
    """Search from the greatest number down, as a store does; return how many were looked at."""
    last = numbers.stop - 1 if after is None else after - 1
    ids = (UUID(int=numbers.start), UUID(int=max(last, 0)))
    scan = Scan(ids, limit=limit, budget=budget, oldest_first=False, now=0)
    looked_at = 0
    while not scan.is_over:
        left = range(scan.last.int, numbers.start - 1, -1)
        piece = left if scan.rows is None else left[: scan.rows]
        edge = UUID(int=piece[-1]) if len(piece) < len(left) else None
        looked_at += len(piece)
        found = [job(number) for number in piece if number in fitting][: scan.wanted]
        scan.add(found, edge, looked_at=len(piece), now=0)
    return scan.page(), looked_at


@given(
    count=st.integers(1, 3_000),
    fitting=st.sets(st.integers(1, 3_000), max_size=20),
    limit=st.integers(1, 5),
    rows=st.one_of(st.none(), st.integers(1, 4_000)),
)
def test_a_search_that_is_continued_finds_every_job_once(
    count: int, fitting: set[int], limit: int, rows: int | None
) -> None:
    numbers = range(1, count + 1)
    budget = None if rows is None else Budget(rows=rows)
    found: list[int] = []
    after: int | None = None
    for _ in range(count + 2):
        page, looked_at = look(numbers, fitting, after, limit=limit, budget=budget)
        assert rows is None or looked_at <= rows
        assert len(page.jobs) <= limit
        found += [each.id.int for each in page.jobs]
        if page.searched_to is not None:
            assert page.after == page.searched_to
            assert len(page.jobs) < limit or rows is not None
        if page.after is None:
            break
        after = page.after.int
    else:
        raise AssertionError("the search comes to an end")
    assert found == sorted(fitting & set(numbers), reverse=True)


def test_time_is_a_budget_too_and_the_first_slice_is_always_looked_at() -> None:
    ids = (UUID(int=0), UUID(int=10_000))
    budget = Budget(rows=10_000, seconds=2)
    scan = Scan(ids, limit=10, budget=budget, oldest_first=False, now=100)
    was_over = [scan.is_over]
    for now, edge in ((101, 9_000), (102, 8_000)):
        scan.add([], UUID(int=edge), looked_at=scan.rows or 0, now=now)
        was_over.append(scan.is_over)
    assert was_over == [False, False, True]
    assert scan.page() == Page(jobs=(), after=UUID(int=8_000), searched_to=UUID(int=8_000))


def test_slices_grow_while_nothing_is_found() -> None:
    ids = (UUID(int=0), UUID(int=10**6))
    scan = Scan(ids, limit=10, budget=Budget(), oldest_first=False, now=0)
    rows = []
    for edge in range(10**6 - 1, 10**6 - 6, -1):
        rows.append(scan.rows)
        scan.add([], UUID(int=edge), looked_at=scan.rows or 0, now=0)
    assert rows == [250, 500, 1_000, 2_000, 4_000]
    assert Scan(ids, limit=900, budget=Budget(), oldest_first=False, now=0).rows == 901


@pytest.mark.parametrize("fields", [{"rows": 0}, {"seconds": 0}, {"seconds": float("nan")}])
def test_a_budget_of_nothing_is_refused(fields: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="budget must have rows of at least 1"):
        Budget(**fields)  # type: ignore[arg-type]
