"""Hooks and middleware keep their own types, and wrong shapes are refused."""

from datetime import timedelta
from typing import Any, reveal_type

from windlass import CallNext, Context, Retry, Windlass

app = Windlass("memory://")


async def timing(ctx: Context, call_next: CallNext) -> Any:
    return await call_next()


def not_middleware(ctx: Context) -> None: ...


@app.on_start
async def begin() -> None: ...


@app.on_job_error
def failed(ctx: Context, error: BaseException) -> None: ...


@app.on_job_error
def failed_after(ctx: Context, error: BaseException, duration: timedelta) -> None: ...


@app.on_job_complete
async def completed_after(ctx: Context, result: Any, duration: timedelta) -> None: ...


@app.job(middleware=[timing], retry=Retry.network())
async def work() -> None: ...


reveal_type(failed)  # R: def (ctx: windlass.handlers.context.Context, error: BaseException)


@app.on_job_start  # E: type-var
def wrong_start(ctx: Context, more: int) -> None: ...


@app.on_job_error  # E: type-var
def wrong_error(ctx: Context, error: BaseException, duration: str) -> None: ...


@app.job(middleware=[not_middleware])  # E: list-item
async def wrong_work() -> None: ...


@app.job(retry=3)  # E: call-overload, untyped-decorator
async def wrong_retry() -> None: ...
