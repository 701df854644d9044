"""Steps: what a function returns, awaited or not, is what its step returns."""

from typing import reveal_type

from windlass import Context, Retry, Windlass, current_step

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
def blocking(ctx: Context) -> None:
    reveal_type(ctx.step_blocking("store", store, []))  # R: int
    ctx.sleep_blocking(3)


@app.job
async def wrong(ctx: Context) -> None:
    await ctx.step(fetch, 7)  # E: call-overload
    await ctx.sleep(None)  # E: arg-type
