"""Small enqueues of an event loop: who writes them, what they share, and what each keeps alone."""

from __future__ import annotations

import asyncio
import fcntl
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.store.sqlite.jobs_in_a_file import PATIENCE, new
from windlass.core.errors import StoreError, StoreUnavailable
from windlass.core.jobs.job import NewJob
from windlass.store.sqlite import SqliteStore
from windlass.store.sqlite.connections import connection, loop_writes, threads
from windlass.store.sqlite.connections.connection import Transaction
from windlass.store.sqlite.connections.threads import Writer

PROOFS = range(1_000, 1_000 + threads._PROOFS)


@pytest.fixture
def quick(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> Iterator[Writer]:
    """A writer whose commits count as quick, whatever this machine's disk takes."""
    monkeypatch.setattr(threads, "_QUICK_SECONDS", float("inf"))
    monkeypatch.setattr(connection, "_FILE_CHECK_SECONDS", 3_600.0)
    for number in PROOFS:
        store.enqueue_blocking([new(number)], PATIENCE)
    writer = store._file.ready().writer
    assert writer.is_quick
    yield writer
    trace(writer, None)


def trace(writer: Writer, said: list[tuple[str, str]] | None) -> None:
    """Have the statements of a writer listed, each with the thread that ran it."""
    assert writer._connection is not None
    writer._connection.set_trace_callback(
        None
        if said is None
        else lambda statement: said.append((threading.current_thread().name, statement))
    )


async def enqueue(store: SqliteStore, jobs: list[NewJob]) -> None:
    await store.enqueue(jobs, PATIENCE)


def count(store: SqliteStore) -> int:
    return sum(each.count for each in asyncio.run(store.counts())) - len(PROOFS)


async def enqueue_singly(store: SqliteStore, numbers: range) -> list[BaseException | None]:
    each = (enqueue(store, [new(number)]) for number in numbers)
    return list(await asyncio.gather(*each, return_exceptions=True))


def test_enqueues_of_one_turn_of_a_loop_share_a_commit_in_its_own_thread(
    store: SqliteStore, quick: Writer
) -> None:
    said: list[tuple[str, str]] = []
    trace(quick, said)
    asyncio.run(enqueue_singly(store, range(1, 17)))
    assert [thread for thread, statement in said if statement == "COMMIT"] == ["MainThread"]
    assert count(store) == 16


def test_more_than_a_group_is_written_in_several_turns(store: SqliteStore, quick: Writer) -> None:
    said: list[tuple[str, str]] = []
    trace(quick, said)
    asyncio.run(enqueue_singly(store, range(1, 151)))
    assert [thread for thread, statement in said if statement == "COMMIT"] == ["MainThread"] * 5
    assert count(store) == 150


def test_of_a_shared_commit_a_failure_undoes_itself_and_not_its_neighbours(
    store: SqliteStore, quick: Writer
) -> None:
    async def main() -> list[BaseException | None]:
        bad = new(3, payload=b"\xff not text")
        jobs = [new(1), new(2), bad, new(4)]
        each = (enqueue(store, [job]) for job in jobs)
        return list(await asyncio.gather(*each, return_exceptions=True))

    outcomes = asyncio.run(main())
    assert [type(outcome) for outcome in outcomes] == [
        type(None),
        type(None),
        UnicodeDecodeError,
        type(None),
    ]
    assert count(store) == 3


def test_a_caller_that_was_cancelled_before_the_turn_has_nothing_written(
    store: SqliteStore, quick: Writer
) -> None:
    async def main() -> None:
        tasks = [asyncio.create_task(enqueue(store, [new(number)])) for number in (1, 2, 3)]
        await asyncio.sleep(0)  # All three wait for the next turn.
        tasks[1].cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(outcomes[1], asyncio.CancelledError)

    asyncio.run(main())
    assert count(store) == 2


def test_a_loop_does_not_wait_for_a_write_lock_that_another_process_holds(
    store: SqliteStore, path: Path, quick: Writer
) -> None:
    async def main() -> None:
        with path.with_name(path.name + "-turn").open("r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            with pytest.raises(StoreUnavailable, match="nothing was written"):
                await store.enqueue([new(1)], timedelta(milliseconds=20))
            waits = asyncio.create_task(enqueue(store, [new(2)]))
            for _ in range(10):
                await asyncio.sleep(0)
            assert not waits.done()
        await waits

    asyncio.run(main())
    assert count(store) == 1


@pytest.mark.parametrize(
    "jobs",
    [[new(number) for number in range(1, 10)], [new(1, payload=b'"' + b"x" * 20_000 + b'"')]],
    ids=["many", "large"],
)
def test_many_or_large_jobs_are_written_by_the_writer_thread(
    store: SqliteStore, quick: Writer, jobs: list[NewJob]
) -> None:
    said: list[tuple[str, str]] = []
    trace(quick, said)
    asyncio.run(enqueue(store, jobs))
    assert [thread for thread, statement in said if statement == "COMMIT"] == ["windlass-write"]
    assert count(store) == len(jobs)


def test_one_slow_commit_sends_small_enqueues_to_the_writer_thread(
    store: SqliteStore, quick: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[tuple[str, str]] = []
    trace(quick, said)
    monkeypatch.setattr(threads, "_QUICK_SECONDS", -1.0)
    asyncio.run(enqueue(store, [new(1)]))  # In the loop's thread, and slow.
    asyncio.run(enqueue(store, [new(2)]))
    commits = [thread for thread, statement in said if statement == "COMMIT"]
    assert commits == ["MainThread", "windlass-write"]


def test_after_many_quick_commits_a_single_slow_one_keeps_small_enqueues_in_the_loop(
    store: SqliteStore, quick: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in PROOFS:
        store.enqueue_blocking([new(number)], PATIENCE)
    said: list[tuple[str, str]] = []
    trace(quick, said)
    monkeypatch.setattr(threads, "_QUICK_SECONDS", -1.0)
    for number in (1, 2, 3):
        asyncio.run(enqueue(store, [new(number)]))
    commits = [thread for thread, statement in said if statement == "COMMIT"]
    assert commits == ["MainThread", "MainThread", "windlass-write"]


@pytest.mark.parametrize(("seconds", "turns"), [(3_600.0, 1), (0.0, 5)], ids=["soon", "late"])
def test_a_lone_caller_writes_at_once_but_lets_the_loop_turn_now_and_then(
    store: SqliteStore,
    quick: Writer,
    monkeypatch: pytest.MonkeyPatch,
    seconds: float,
    turns: int,
) -> None:
    """Prevents: a coroutine that only enqueues keeps all others from running."""
    monkeypatch.setattr(loop_writes, "_ALONE_SECONDS", seconds)

    async def main() -> int:
        turned = 0

        async def others() -> None:
            nonlocal turned
            while True:
                await asyncio.sleep(0)
                turned += 1

        other = asyncio.create_task(others())
        await asyncio.sleep(0)
        for number in range(1, 6):
            await enqueue(store, [new(number)])
        other.cancel()
        return turned

    assert asyncio.run(main()) in (turns, turns + 1)
    assert count(store) == 5


def test_a_caller_that_is_not_alone_shares_its_commits_again(
    store: SqliteStore, quick: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_writes, "_ALONE_SECONDS", 3_600.0)
    said: list[tuple[str, str]] = []

    async def main() -> None:
        await enqueue_singly(store, range(1, 9))
        trace(quick, said)
        await enqueue_singly(store, range(9, 17))

    asyncio.run(main())
    assert [statement for _, statement in said].count("COMMIT") == 1
    assert count(store) == 16


def test_a_caller_that_a_signal_cancels_during_the_write_keeps_no_other_from_its_answer(
    store: SqliteStore, quick: Writer
) -> None:
    """Prevents: after Ctrl-C, which may come between any two steps, the rest of a turn waits."""

    async def main() -> list[Any]:
        tasks = [asyncio.create_task(enqueue(store, [new(number)])) for number in (1, 2, 3)]
        write = quick.write_at_once

        def interrupted(operations: Sequence[Any]) -> list[Any]:
            answers = write(operations)
            tasks[0].cancel()
            return answers

        quick.write_at_once = interrupted  # type: ignore[method-assign]
        return await asyncio.gather(*tasks, return_exceptions=True)

    outcomes = asyncio.run(asyncio.wait_for(main(), 60))
    assert isinstance(outcomes[0], asyncio.CancelledError)
    assert outcomes[1:] == [None, None]
    assert count(store) == 3


def test_loops_of_several_threads_write_side_by_side(store: SqliteStore, quick: Writer) -> None:
    def produce(first: int) -> None:
        asyncio.run(enqueue_singly(store, range(first, first + 20)))

    producers = [threading.Thread(target=produce, args=(100 * n + 1,)) for n in range(4)]
    for producer in producers:
        producer.start()
    for producer in producers:
        producer.join()
    assert count(store) == 80


def test_a_turn_that_fails_as_a_whole_fails_all_its_callers(
    store: SqliteStore, quick: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Transaction, *_: object) -> None:
        self._roll_back()
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as briefly:
        briefly.setattr(Transaction, "__exit__", refuse)
        outcomes = asyncio.run(enqueue_singly(store, range(1, 4)))
    assert all(isinstance(outcome, StoreError) for outcome in outcomes)
    assert all("is full" in str(outcome) for outcome in outcomes)
    asyncio.run(enqueue(store, [new(9)]))
    assert count(store) == 1


def test_callers_that_come_while_a_lone_one_lets_the_loop_turn_share_their_commits(
    store: SqliteStore, quick: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prevents: several callers who each believe to be alone, and flush for each job."""
    monkeypatch.setattr(loop_writes, "_ALONE_SECONDS", 0.0)
    said: list[tuple[str, str]] = []

    async def main() -> None:
        await enqueue(store, [new(1)])  # Alone from now on, and its time is up.
        trace(quick, said)
        await enqueue_singly(store, range(2, 10))

    asyncio.run(main())
    assert [statement for _, statement in said].count("COMMIT") == 1
    assert count(store) == 9


def test_a_lone_job_is_one_statement_and_nothing_around_it(
    store: SqliteStore, quick: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_writes, "_ALONE_SECONDS", 3_600.0)
    said: list[tuple[str, str]] = []

    async def main() -> None:
        await enqueue(store, [new(1)])
        trace(quick, said)
        await enqueue(store, [new(2)])
        await enqueue(store, [new(3, headers={"a": "b"})])
        await enqueue(store, [new(2)])  # Known already.

    asyncio.run(main())
    store.enqueue_blocking([new(4)], PATIENCE)
    assert [thread for thread, _ in said] == ["MainThread"] * 4
    assert all("INSERT INTO jobs" in statement for _, statement in said)
    assert count(store) == 4


@pytest.mark.parametrize("way", ["blocking", "awaited"])
def test_a_lone_job_waits_for_another_program_that_writes(
    store: SqliteStore, path: Path, quick: Writer, way: str
) -> None:
    """The other program takes SQLite's own lock, and not the one beside the file."""
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    timer = threading.Timer(0.1, other.execute, ["COMMIT"])
    timer.start()
    try:
        if way == "blocking":
            store.enqueue_blocking([new(1)], PATIENCE)
        else:
            asyncio.run(enqueue(store, [new(1)]))
    finally:
        timer.join()
        other.close()
    assert count(store) == 1


def test_a_lone_job_that_the_file_refuses_is_not_written(
    store: SqliteStore, path: Path, quick: Writer
) -> None:
    with sqlite3.connect(path) as other:
        other.execute(
            "CREATE TRIGGER refused BEFORE INSERT ON jobs BEGIN SELECT raise(ABORT, 'no'); END"
        )
    with pytest.raises(StoreError, match="no"):
        store.enqueue_blocking([new(1)], PATIENCE)
    with sqlite3.connect(path) as other:
        other.execute("DROP TRIGGER refused")
    store.enqueue_blocking([new(2)], PATIENCE)
    assert count(store) == 1


def test_a_lone_job_never_joins_a_transaction_that_was_left_open(
    store: SqliteStore, quick: Writer
) -> None:
    """Prevents: an acknowledged job that is rolled back with what a signal had interrupted."""
    assert quick._connection is not None
    quick._connection.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError):
        store.enqueue_blocking([new(1)], PATIENCE)
    store.enqueue_blocking([new(2)], PATIENCE)
    assert count(store) == 1
