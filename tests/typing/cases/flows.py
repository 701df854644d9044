"""Flows: nodes know what their jobs return, and policies are known by name."""

from typing import reveal_type

from windlass import After, Cancel, Context, Snooze, Windlass

app = Windlass("memory://")


@app.job
async def extract(day: str) -> list[int]:
    return [len(day)]


@app.job
async def load(ctx: Context) -> int:
    return len(await ctx.results())


@app.job
async def wait_for(file: str) -> bytes | Snooze | Cancel:
    return Snooze("1m")


async def right() -> None:
    waits = app.flow("waits").add(wait_for.draft("x"))
    reveal_type(waits.handle.result())  # R: bytes
    flow = app.flow("nightly", on_failure="compensate")
    first = flow.add(extract.draft("monday"), undo=load.draft())
    second = flow.add(load.draft(), after=[After(first, on_failure="continue")], name="load")
    reveal_type(second.handle)  # R: Handle[int]
    reveal_type(await first.handle.aresult())  # R: list[int]
    reveal_type(await (await flow.aenqueue()).aresult())  # R: FlowResult
    reveal_type(app.chain(extract.draft("monday"), load.draft()))  # R: Flow


def wrong() -> None:
    flow = app.flow("nightly", on_failure="panic")  # E: arg-type
    flow.add(load)  # E: arg-type
    flow.add(load.draft(), after=["load"])  # E: list-item
