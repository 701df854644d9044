"""Answers that viewers share: kept while they are fresh, bounded, and given to all who wait."""

from __future__ import annotations

import asyncio
import weakref

from tests.web.viewing import seeded, shop
from windlass.web.live.reads import Reads
from windlass.web.live.shared_answers import SharedAnswers

_LONG = 3_600.0


class _Large:
    """A value whose end can be seen."""


def test_an_answer_is_let_go_of_when_it_is_no_longer_fresh() -> None:
    async def main() -> None:
        answers = SharedAnswers[str](0.01)

        async def read() -> _Large:
            return _Large()

        gone = asyncio.Event()
        weakref.finalize(await answers.get("large", read), gone.set)
        # Nobody asks for anything any more.
        await asyncio.wait_for(gone.wait(), 30)
        assert len(answers) == 0

    asyncio.run(main())


def test_a_fresh_answer_serves_all_who_ask() -> None:
    async def main() -> None:
        answers, calls = SharedAnswers[str](_LONG), 0

        async def read() -> int:
            nonlocal calls
            calls += 1
            await asyncio.sleep(0)
            return calls

        assert await asyncio.gather(*(answers.get("it", read) for _ in range(9))) == [1] * 9
        assert await answers.get("it", read) == 1
        answers.forget()
        assert await answers.get("it", read) == 2

    asyncio.run(main())


def test_there_are_never_more_answers_than_may_be() -> None:
    async def main() -> None:
        answers = SharedAnswers[int](_LONG, most=3)
        release = asyncio.Event()

        async def read() -> str:
            await release.wait()
            return "read"

        asking = [asyncio.create_task(answers.get(number, read)) for number in range(9)]
        await asyncio.sleep(0)
        assert len(answers) == 3
        release.set()
        assert await asyncio.gather(*asking) == ["read"] * 9
        assert len(answers) == 3

    asyncio.run(main())


def test_an_error_is_raised_by_all_who_wait_and_not_kept() -> None:
    async def main() -> None:
        answers = SharedAnswers[str](_LONG)

        async def fail() -> int:
            raise ValueError("wrong")

        async def read() -> int:
            return 1

        found = await asyncio.gather(
            answers.get("it", fail), answers.get("it", fail), return_exceptions=True
        )
        assert list(map(str, found)) == ["wrong", "wrong"]
        assert await answers.get("it", read) == 1

    asyncio.run(main())


def test_an_answer_that_was_forgotten_while_it_was_read_does_not_replace_a_newer_one() -> None:
    async def main() -> None:
        answers = SharedAnswers[str](_LONG)
        release = asyncio.Event()

        async def slow() -> str:
            await release.wait()
            return "old"

        async def read() -> str:
            return "new"

        old = asyncio.create_task(answers.get("it", slow))
        await asyncio.sleep(0)
        answers.forget()
        assert await answers.get("it", read) == "new"
        release.set()
        assert await old == "old"
        assert await answers.get("it", slow) == "new"

    asyncio.run(main())


def test_a_change_of_the_figures_does_not_examine_the_store_anew() -> None:
    async def main() -> None:
        app = shop()
        await seeded(app)
        reads = Reads(app)
        report = await reads.doctor()
        reads.refresh()
        assert await reads.doctor() is report
        reads.forget()
        assert await reads.doctor() is not report

    asyncio.run(main())
