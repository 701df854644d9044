"""Streams: chunks are what the listener names, and a restart may come between them."""

from typing import reveal_type

from msgspec import Struct

from windlass import Context, StreamRestart, SyncContext, Windlass

app = Windlass("memory://")


class Row(Struct):
    number: int


@app.job
async def awaiting(ctx: Context) -> str:
    await ctx.stream("text")
    await ctx.stream({"any": ["value", 1, None]})
    await ctx.stream(Row(1))
    await ctx.stream()  # E: call-arg
    return ""


@app.job
def blocking(ctx: SyncContext) -> None:
    ctx.stream(Row(1))
    reveal_type(ctx.stream)  # R: def (chunk: Any)


async def listen() -> None:
    handle = await awaiting.aenqueue()
    async for row in handle.astream(Row, timeout="30s"):
        reveal_type(row)  # R: Row | windlass.core.jobs.streams.StreamRestart
        print(row.number)  # E: union-attr
        if not isinstance(row, StreamRestart):
            reveal_type(row.number)  # R: int
    stream = handle.astream(after="1-17")
    reveal_type(stream.position)  # R: str
    async for chunk in stream:
        if isinstance(chunk, StreamRestart):
            reveal_type(chunk.kept)  # R: int
    for other in blocking.enqueue().stream(str):
        reveal_type(other)  # R: str | windlass.core.jobs.streams.StreamRestart
    async for wrong in handle.stream():  # E: attr-defined
        print(wrong)
    handle.stream(after=17)  # E: call-overload
