"""Resources are opened in the order of need and closed in the opposite one, whatever happens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from tests.support.app_on_store import log_lines
from windlass import ConfigError, Inject, ProviderError
from windlass.handlers.provided import Provided, Providers

SHORT = 0.05


class First:
    """What needs nothing."""


class Second:
    """What needs the first."""


class Third:
    """What needs the second."""


class Fourth:
    """What stands alone."""


class Diary:
    """Functions that give values, and write down when each is opened and closed."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def first(self) -> Callable[..., Any]:
        async def first() -> AsyncIterator[First]:
            self.lines.append("open first")
            await asyncio.sleep(0)
            yield First()
            await asyncio.sleep(0)
            self.lines.append("close first")

        return first

    def second(self) -> Callable[..., Any]:
        def second(it: First = Inject) -> Iterator[Second]:
            assert isinstance(it, First)
            self.lines.append("open second")
            yield Second()
            self.lines.append("close second")

        return second

    def third(self) -> Callable[..., Any]:
        async def third(it: Second = Inject) -> Third:
            self.lines.append("open third")
            return Third()

        return third

    def fourth(self) -> Callable[..., Any]:
        def fourth() -> Fourth:
            self.lines.append("open fourth")
            return Fourth()

        return fourth


OPENED = ["open first", "open second", "open third", "open fourth"]
CLOSED = ["close second", "close first"]


def registered(*functions: Callable[..., Any]) -> Providers:
    providers = Providers()
    for function in functions:
        providers.add(function)
    return providers


def test_every_sort_of_function_is_opened_after_what_it_needs_and_closed_before() -> None:
    diary = Diary()
    providers = registered(diary.third(), diary.second(), diary.first(), diary.fourth())

    async def main() -> None:
        async with Provided(providers) as provided:
            assert diary.lines == OPENED
            for kind in (First, Second, Third, Fourth):
                assert type(provided[kind]) is kind
                assert provided[kind] is provided[kind]
        assert diary.lines == OPENED + CLOSED
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(main())


def test_a_function_is_given_what_is_open() -> None:
    diary = Diary()

    def handler(n: int, a: First = Inject, *, b: Second = Inject) -> None: ...

    async def main() -> None:
        providers = registered(diary.first(), diary.second())
        async with Provided(providers) as provided:
            assert provided.given(handler) == {"a": provided[First], "b": provided[Second]}
            assert provided.given(main) == {}

    asyncio.run(main())


def test_one_that_cannot_be_opened_is_named_and_those_before_it_are_closed() -> None:
    diary = Diary()

    async def broken(it: Second = Inject) -> Third:
        raise OSError("nobody listens")

    async def main() -> None:
        provided = Provided(registered(diary.first(), diary.second(), broken, diary.fourth()))
        with pytest.raises(ProviderError) as raised:
            await provided.open()
        assert str(raised.value) == (
            "the provider 'broken' could not be opened: OSError: nobody listens"
        )
        assert isinstance(raised.value.__cause__, OSError)
        assert len(asyncio.all_tasks()) == 1
        with pytest.raises(ProviderError, match="'first' is not open"):
            provided[First]

    asyncio.run(main())
    assert diary.lines == ["open first", "open second", "close second", "close first"]


@pytest.mark.parametrize("how", ["yields nothing", "is cancelled"])
def test_one_that_gives_nothing_is_named(how: str) -> None:
    async def barren() -> AsyncIterator[First]:
        if how == "is cancelled":
            raise asyncio.CancelledError
        for _ in ():
            yield First()

    async def main() -> None:
        with pytest.raises(ProviderError, match="'barren' could not be opened: "):
            await Provided(registered(barren)).open()

    asyncio.run(main())


def test_nothing_is_opened_if_something_is_missing() -> None:
    diary = Diary()

    async def main() -> None:
        with pytest.raises(ConfigError, match="the provider second asks for `it: First`"):
            await Provided(registered(diary.fourth(), diary.second())).open()

    asyncio.run(main())
    assert diary.lines == []


def test_opening_that_is_cancelled_is_undone() -> None:
    diary = Diary()
    reached = asyncio.Event()

    async def slow(it: Second = Inject) -> AsyncIterator[Third]:
        reached.set()
        try:
            await asyncio.Event().wait()
            yield Third()
        finally:
            diary.lines.append("slow is over")

    async def main() -> None:
        provided = Provided(registered(diary.first(), diary.second(), slow))
        task = asyncio.create_task(provided.open())
        await reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(main())
    assert diary.lines == ["open first", "open second", "slow is over", *CLOSED]


def test_a_close_that_fails_is_logged_and_the_others_are_closed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    diary = Diary()

    def broken(it: Second = Inject) -> Iterator[Third]:
        yield Third()
        raise ValueError("gone already")

    async def main() -> None:
        async with Provided(registered(broken, diary.first(), diary.second())) as provided:
            pass
        assert provided.left_behind == 0

    asyncio.run(main())
    assert diary.lines[2:] == CLOSED
    (line,) = log_lines(caplog, "provider.not_closed")
    assert (line["provider"], line["error"]) == ("broken", "ValueError: gone already")


def test_a_close_that_hangs_is_cut_off_and_the_others_are_closed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    diary = Diary()

    async def hanging(it: Second = Inject) -> AsyncIterator[Third]:
        yield Third()
        await asyncio.Event().wait()

    async def main() -> None:
        providers = registered(hanging, diary.first(), diary.second())
        async with Provided(providers, patience=SHORT) as provided:
            pass
        assert provided.left_behind == 0
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(main())
    assert diary.lines[2:] == CLOSED
    (line,) = log_lines(caplog, "provider.not_closed")
    assert (line["provider"], line["error"]) == ("hanging", "TimeoutError: no end within 0.05 s")


def test_a_close_that_heeds_nothing_is_left_behind() -> None:
    diary, over = Diary(), asyncio.Event()

    async def deaf(it: Second = Inject) -> AsyncIterator[Third]:
        yield Third()
        while not over.is_set():
            try:
                await over.wait()
            except asyncio.CancelledError:
                continue

    async def main() -> None:
        providers = registered(deaf, diary.first(), diary.second())
        async with Provided(providers, patience=SHORT) as provided:
            pass
        assert provided.left_behind == 1
        assert diary.lines[2:] == CLOSED
        over.set()

    asyncio.run(main())


def test_a_provided_value_is_closed_by_the_task_that_opened_it() -> None:
    """Prevents: a cancel scope or task group that was entered in one task is left in another."""

    async def grouped() -> AsyncIterator[asyncio.TaskGroup]:
        opener = asyncio.current_task()
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            yield group
        assert asyncio.current_task() is opener

    async def main() -> int:
        async with Provided(registered(grouped)) as provided:
            return await provided[asyncio.TaskGroup].create_task(asyncio.sleep(0, 5))

    assert asyncio.run(main()) == 5


def test_a_program_that_ends_closes_a_provided_value_only_after_its_users() -> None:
    """`asyncio.run` cancels every task at once when the program's main coroutine returns.

    Prevents: a provided value's own task is cancelled too, and closes what draining jobs still use.
    """
    diary, opened = Diary(), asyncio.Event()

    async def user() -> None:
        async with Provided(registered(diary.first())):
            opened.set()
            try:
                await asyncio.Event().wait()
            finally:
                for _ in range(5):
                    await asyncio.sleep(0)
                diary.lines.append("user is done")

    async def main() -> None:
        task = asyncio.create_task(user())
        await opened.wait()
        assert not task.done()

    asyncio.run(main())
    assert diary.lines == ["open first", "user is done", "close first"]


def test_they_can_be_opened_again_and_are_others_then() -> None:
    diary = Diary()

    def handler(it: First = Inject) -> None: ...

    async def main() -> None:
        provided = Provided(registered(diary.first()))
        seen = []
        for _ in range(2):
            async with provided:
                assert provided.given(handler) == {"it": provided[First]}
                seen.append(provided[First])
        assert seen[0] is not seen[1]

    asyncio.run(main())
    assert diary.lines == ["open first", "close first"] * 2


def test_asking_for_what_is_not_there_tells_what_is() -> None:
    diary = Diary()

    async def main() -> None:
        async with Provided(registered(diary.first())) as provided:
            with pytest.raises(
                ConfigError,
                match=r"provided\[Second\] is asked for, but no .*: first \(First\)",
            ):
                provided[Second]

    asyncio.run(main())
