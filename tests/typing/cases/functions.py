"""Functions, with and without a context: `enqueue` takes what they take, `ctx` left out."""

from typing import reveal_type

from windlass import Breaker, Cancel, Context, Snooze, SyncContext, Unique, Windlass

app = Windlass("memory://")


@app.job
async def greet(name: str, *, loud: bool = False) -> str:
    return name


@app.job
def add(a: int, b: int = 1) -> int:
    return a + b


@app.job(queue="mail", timeout="30s", breaker=Breaker("smtp", cooldown="1m"))
async def send(ctx: Context, to: str) -> str:
    return to


@app.job
def note(ctx: SyncContext, text: str) -> None: ...


@app.job(timeout=None, max_retries=2, breaker="smtp")
def plain(x: list[int]) -> dict[str, int]:
    return {}


@app.job(
    unique=Unique("n", scope="queue", until="settled", on_duplicate="push"),
    idempotency_key=lambda n: n,
    idempotent="result",
)
async def pay(n: int) -> str:
    return ""


@app.job
async def poll(n: int) -> str | Snooze | Cancel:
    return Snooze("1m")


@app.job
def look(ctx: SyncContext, n: int) -> int | Snooze | None:
    return None


@app.job(queue="mail")
def ask(n: int) -> dict[str, int] | Cancel:
    return Cancel("moot")


@app.job
async def wait(n: int) -> Snooze | Cancel:
    return Snooze("1m")


@app.job(queue="mail")
def stop(ctx: SyncContext, n: int) -> Cancel:
    return Cancel("moot")


@app.every("1h")
def tick() -> Snooze | Cancel:
    return Snooze("1m")


@app.job
async def either(n: int) -> int | str:
    return n


async def right() -> None:
    reveal_type(poll.enqueue(1))  # R: Handle[str]
    reveal_type(poll.enqueue(1).result())  # R: str
    reveal_type(await (await poll.aenqueue(1)).aresult("1s"))  # R: str
    reveal_type(poll.using(queue="q").draft(1))  # R: Draft[str]
    reveal_type(await poll(1))  # R: str | Snooze | Cancel
    reveal_type(look.enqueue(1).result())  # R: int | None
    reveal_type(await (await ask.aenqueue(1)).aresult())  # R: dict[str, int]
    reveal_type(wait.enqueue(1))  # R: Handle[None]
    reveal_type(await (await wait.aenqueue(1)).aresult())  # R: None
    reveal_type(await wait(1))  # R: None | Snooze | Cancel
    reveal_type(stop.enqueue(1))  # R: Handle[None]
    reveal_type(tick.enqueue())  # R: Handle[None]
    reveal_type(either.enqueue(1).result())  # R: int | str
    reveal_type(await either(1))  # R: int | str
    reveal_type(await greet.aenqueue("anna", loud=True))  # R: Handle[str]
    reveal_type(greet.enqueue(name="anna"))  # R: Handle[str]
    reveal_type(await (await greet.aenqueue("anna")).aresult("60s"))  # R: str
    reveal_type(add.enqueue(1))  # R: Handle[int]
    reveal_type(add.enqueue(1, 2).result())  # R: int
    reveal_type(await send.aenqueue("anna"))  # R: Handle[str]
    reveal_type(note.enqueue(text="x"))  # R: Handle[None]
    reveal_type(plain.enqueue([1]).result())  # R: dict[str, int]
    reveal_type(greet("anna"))  # R: Awaitable[str]
    reveal_type(await greet("anna"))  # R: str
    reveal_type(add(1, b=2))  # R: int
    reveal_type(greet.using(queue="q", delay="5m", unique="k").enqueue("anna"))  # R: Handle[str]
    reveal_type(greet.using(tx=object()).enqueue("anna"))  # R: Handle[str]
    reveal_type(await send.using(tx=object(), unique="k").aenqueue("anna"))  # R: Handle[str]
    reveal_type(add.using(tx=object()).draft(1))  # R: Draft[int]
    reveal_type(add.using(unique=Unique("k", until="24h")).enqueue(1))  # R: Handle[int]
    reveal_type(add.using(idempotency_key="k").enqueue(1))  # R: Handle[int]
    reveal_type(pay.enqueue(1))  # R: Handle[str]
    reveal_type(app.enqueue_many([add.draft(1)], tx=object()))  # R: list[Handle[int]]
    reveal_type(await app.aenqueue_many([greet.draft("a")], tx=object()))  # R: list[Handle[str]]
    reveal_type(send.draft("anna"))  # R: Draft[str]
    reveal_type(app.enqueue_many([add.draft(1), add.draft(2)]))  # R: list[Handle[int]]
    reveal_type(poll.enqueue(1).is_duplicate)  # R: bool
    add.using(priority=5, max_retries=3, timeout=2.5, expires="1h", headers={"a": "b"}).enqueue(1)


async def wrong() -> None:
    await greet.aenqueue(7)  # E: arg-type
    await greet.aenqueue()  # E: call-arg
    await greet.aenqueue("anna", louder=True)  # E: call-arg
    await greet.aenqueue("anna", True)  # E: call-arg
    greet.enqueue(name=b"anna")  # E: arg-type
    add.enqueue("1")  # E: arg-type
    add.enqueue(1, 2, 3)  # E: call-arg
    send.enqueue(7)  # E: arg-type
    note.enqueue()  # E: call-arg
    plain.enqueue(["x"])  # E: list-item
    add.draft("x")  # E: arg-type
    add("x")  # E: arg-type
    add.using(queue=5)  # E: arg-type
    add.using(urgent=True)  # E: call-arg
    add.using(delay="1m").enqueue("x")  # E: arg-type
    add.using(tx=object()).enqueue("x")  # E: arg-type
    await greet.using(tx=object()).aenqueue(7)  # E: arg-type
    add.using(object()).enqueue(1)  # E: arg-type, call-arg
    add.using(headers={"n": 5})  # E: dict-item
    text: str = add.enqueue(1).result()  # E: assignment
    poll.enqueue("x")  # E: arg-type
    number: int = poll.enqueue(1).result()  # E: assignment
    print(text, number)
