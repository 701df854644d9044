"""Provided values: `enqueue` needs none of them, and a direct call in a test may give them."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import NewType, reveal_type

from windlass import CallNext, Context, Inject, Kind, SyncContext, Windlass

app = Windlass("memory://")


class Pool:
    async def fetch(self, number: int) -> str:
        return str(number)


Replica = NewType("Replica", Pool)


@dataclass
class Order:
    number: int


ORDER = Kind("order", Order)


@app.provide
async def pool() -> AsyncIterator[Pool]:
    yield Pool()


@app.provide
def replica(first: Pool = Inject) -> Replica:
    return Replica(first)


@app.job
async def sync(order: int, db: Pool = Inject) -> str:
    reveal_type(db)  # R: cases.provided.Pool
    return await db.fetch(order)


@app.job(queue="q")
def note(ctx: SyncContext, text: str, *, db: Replica = Inject) -> None:
    reveal_type(ctx.provided[Pool])  # R: cases.provided.Pool
    reveal_type(ctx.provided[Replica])  # R: cases.provided.Replica


@app.job(ORDER)
async def take(order: Order, db: Pool = Inject) -> str:
    return ""


@app.job(ORDER)
def take_too(ctx: SyncContext, order: Order, *, db: Pool = Inject) -> int:
    return 1


@dataclass
class Sync:
    number: int

    async def execute(self, ctx: Context, db: Pool = Inject) -> str:
        return await db.fetch(self.number)


sync_class = app.job(Sync)


@app.on_start
async def start(db: Pool = Inject) -> None: ...


@app.on_job_error
def failed(ctx: Context, error: BaseException, db: Pool = Inject) -> None: ...


async def layer(ctx: Context, call_next: CallNext, db: Pool = Inject) -> object:
    return await call_next()


Windlass("memory://", middleware=[layer])


async def right() -> None:
    reveal_type(pool)  # R: def () -> typing.AsyncIterator[cases.provided.Pool]
    reveal_type(sync.enqueue(1))  # R: Handle[str]
    reveal_type(await sync.aenqueue(order=1))  # R: Handle[str]
    reveal_type(await sync(1, db=Pool()))  # R: str
    reveal_type(note.enqueue("x"))  # R: Handle[None]
    reveal_type(take.enqueue(Order(1)))  # R: Handle[str]
    reveal_type(await take(Order(1), db=Pool()))  # R: str
    reveal_type(take_too.enqueue(Order(1)))  # R: Handle[int]
    reveal_type(sync_class.enqueue(number=1))  # R: Handle[str]
    async with app.open_provided() as provided:
        reveal_type(provided[Pool])  # R: cases.provided.Pool


async def wrong(fake: object) -> None:
    sync.enqueue("1")  # E: arg-type
    await sync(1, db=fake)  # E: arg-type
    await take(Order(1), db=fake)  # E: arg-type
    take.enqueue(1)  # E: arg-type
    app.provide(5)  # E: type-var
