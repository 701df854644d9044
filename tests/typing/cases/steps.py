"""Steps: what a function returns, awaited or not, is what its step returns."""

from typing import reveal_type

from windlass import AnyContext, Context, Retry, SyncContext, Windlass, current_step

app = Windlass("memory://")


async def fetch(page: int) -> list[str]:
    reveal_type(current_step().key)  # R: str
    return []


def store(lines: list[str], *, twice: bool = False) -> int:
    return len(lines)


@app.job
async def right(ctx: Context) -> None:
    lines = await ctx.step("fetch", fetch, 7, timeout="5s")
    reveal_type(lines)  # R: list[str]
    count = await ctx.step("store", store, lines, twice=True, undo=print, undo_retry=Retry())
    reveal_type(count)  # R: int
    await ctx.sleep("1d", name="a day")


@app.job
def blocking(ctx: SyncContext) -> None:
    reveal_type(ctx.step("store", store, []))  # R: int
    ctx.sleep(3)
    reveal_type(ctx.already_done())  # R: bool
    with ctx.transaction() as conn:
        print(conn)


@app.job
async def wrong(ctx: Context) -> None:
    await ctx.step(fetch, 7)  # E: call-overload
    await ctx.sleep(None)  # E: arg-type
    with ctx.transaction():  # E: attr-defined
        pass


@app.job
def blocking_wrong(ctx: SyncContext) -> None:
    ctx.sleep(None)  # E: arg-type
    ctx.step(store, [])  # E: arg-type


@app.job
def mistaken(ctx: Context, n: int) -> None: ...


def note(ctx: AnyContext) -> None:
    ctx.progress(0.5)
    ctx.step("store", store, [])  # E: attr-defined


@app.job
def either(ctx: AnyContext, n: int) -> None:
    note(ctx)


mistaken.enqueue(1)  # E: call-arg, arg-type
either.enqueue(1)
