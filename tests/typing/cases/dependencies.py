"""Dependencies: with a default `enqueue` needs none of them, and a direct call may give them."""

from collections.abc import AsyncIterator
from typing import Annotated, reveal_type

from windlass import Inject, Kind, Windlass

app = Windlass("memory://")


class Session: ...


async def get_session() -> AsyncIterator[Session]:
    yield Session()


SessionDep = Annotated[Session, Inject(get_session)]
ORDER = Kind("order", int)


@app.job
async def send(order: int, session: SessionDep = Inject) -> str:
    reveal_type(session)  # R: cases.dependencies.Session
    return ""


@app.job
def by_default(order: int, *, session: Session = Inject(get_session)) -> str:
    return ""


@app.job
def many(order: int, *, session: SessionDep = Inject, copy: SessionDep = Inject) -> str:
    reveal_type(copy)  # R: cases.dependencies.Session
    return ""


@app.job(ORDER)
async def take(order: int, session: SessionDep) -> str:
    return ""


@app.job
async def bare(order: int, session: SessionDep) -> str:
    return ""


app.dependency_overrides[get_session] = lambda: Session()


async def right() -> None:
    reveal_type(send.enqueue(1))  # R: Handle[str]
    reveal_type(by_default.enqueue(order=1))  # R: Handle[str]
    reveal_type(take.enqueue(1))  # R: Handle[str]
    reveal_type(many.enqueue(1))  # R: Handle[str]
    reveal_type(await send.aenqueue(1))  # R: Handle[str]
    reveal_type(send.using(queue="mail").enqueue(1))  # R: Handle[str]
    reveal_type(many(1, session=Session(), copy=Session()))  # R: str
    app.enqueue_many([send.draft(1), many.draft(order=2)])
    reveal_type(await send(1, session=Session()))  # R: str


async def wrong() -> None:
    await send(1, session=1)  # E: arg-type
    send.enqueue("1")  # E: arg-type
    bare.enqueue(1)  # E: call-arg
    many.enqueue(1, Session())  # E: call-arg
    app.dependency_overrides[get_session] = 1  # E: assignment
