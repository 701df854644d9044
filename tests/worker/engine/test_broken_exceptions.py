"""An exception may do anything when it is looked at: its job has failed all the same, at once."""

from __future__ import annotations

import asyncio
from typing import Any, NoReturn

import pytest

from tests.support.app_on_store import Bed, in_state, serving
from windlass import Breaker, Context, Job, Retry, State, Windlass


def refuse(*_: object) -> NoReturn:
    raise RuntimeError("nobody looks at this")


def leave(*_: object) -> NoReturn:
    raise SystemExit(3)


def broken(name: str, base: type[BaseException], **attributes: Any) -> type[BaseException]:
    return type(name, (base,), attributes)


OTHERS = ("__cause__", "__context__", "__suppress_context__", "__traceback__", "__notes__", "args")
ERRORS = [
    broken("NoClass", Exception, __class__=property(refuse)),
    broken("ExitingClass", Exception, __class__=property(leave)),
    broken("NoClassAtAll", BaseException, __class__=property(refuse)),
    broken("NoText", Exception, __str__=refuse, __repr__=refuse),
    broken("ExitingText", BaseException, __str__=leave, __repr__=leave),
    broken("NoStop", StopIteration, __str__=refuse, __repr__=refuse),
    *(broken(f"No{name.strip('_')}", Exception, **{name: property(refuse)}) for name in OTHERS),
    broken("NoMembers", ExceptionGroup, exceptions=property(refuse)),
]
every_error = pytest.mark.parametrize("error", ERRORS, ids=lambda each: each.__name__)


def made(error: type[BaseException]) -> BaseException:
    if issubclass(error, BaseExceptionGroup):
        return error("several", [ValueError("one")])
    return error("broken")


async def ended(app: Windlass, job: Any, *args: Any) -> Job:
    async with serving(app):
        return await in_state(await job.aenqueue(*args), State.DEAD)


@pytest.mark.parametrize("bed", ["memory"], indirect=True)
@every_error
@pytest.mark.parametrize("place", ["loop", "thread", "batch", "share", "step", "undo"])
def test_a_job_whose_exception_is_broken_has_failed(
    bed: Bed, error: type[BaseException], place: str
) -> None:
    """Prevents a job that runs until its timeout, since nobody could tell what it had raised."""
    app = bed.app()
    options: Any = {
        "retry": Retry(max_retries=1, on={LookupError: Retry.never()}, initial="1ms"),
        "breaker": Breaker("gateway", on=[ConnectionError], failures=100),
    }

    async def fail() -> None:
        raise made(error)

    async def loop() -> None:
        await fail()

    def thread() -> None:
        raise made(error)

    async def batch(items: list[None]) -> None:
        await fail()

    async def share(items: list[None]) -> list[BaseException]:
        return [made(error)]

    async def step(ctx: Context) -> None:
        await ctx.step("fail", fail)

    async def undo(ctx: Context) -> None:
        await ctx.step("done", asyncio.sleep, 0, undo=lambda _: None)
        await fail()

    places: dict[str, Any] = {
        "loop": loop,
        "thread": thread,
        "batch": batch,
        "share": share,
        "step": step,
        "undo": undo,
    }
    in_batch = place in ("batch", "share")
    if in_batch:
        options["batch_size"] = 1
    job = app.job(**options)(places[place])
    dead = asyncio.run(ended(app, job, *([None] if in_batch else [])))
    assert (dead.failures, dead.crashes) == (2, 0)
    assert dead.error is not None
    assert dead.error.type in (f"{error.__module__}.{error.__name__}", "RuntimeError")


def test_a_broken_exception_fails_its_job_on_every_store(bed: Bed) -> None:
    app = bed.app()

    @app.job(max_retries=0)
    async def work() -> None:
        raise made(ERRORS[0])

    job = asyncio.run(ended(app, work))
    assert job.error is not None
    assert (job.failures, job.error.message) == (1, "broken")
