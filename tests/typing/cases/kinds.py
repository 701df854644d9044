"""Kinds: producers give their payload, handlers take it."""

from dataclasses import dataclass
from typing import reveal_type

from windlass import Cancel, Kind, Snooze, SyncContext, Windlass

app = Windlass("memory://")


@dataclass
class Email:
    to: str


@dataclass
class Parcel:
    weight: int


SEND_EMAIL = Kind("send_email", Email)
SEND_PARCEL = Kind("send_parcel", Parcel)


@app.job(SEND_EMAIL)
async def send_email(email: Email) -> str:
    return email.to


@app.job(SEND_PARCEL, queue="parcels")
def send_parcel(ctx: SyncContext, parcel: Parcel) -> int:
    return parcel.weight


@app.job(Kind("send_or_wait", Email))
async def send_or_wait(email: Email) -> str | Snooze | Cancel:
    return Snooze("1m")


@app.job(Kind("send_with_context", Email))
def send_with_context(ctx: SyncContext, email: Email) -> bytes | Snooze:
    return b""


async def right() -> None:
    reveal_type(send_or_wait.enqueue(Email("anna")).result())  # R: str
    reveal_type(send_with_context.enqueue(Email("anna")).result())  # R: bytes
    reveal_type(SEND_EMAIL)  # R: Kind[cases.kinds.Email]
    reveal_type(await app.producer(SEND_EMAIL).aenqueue(Email("anna")))  # R: Handle[Any]
    reveal_type(await send_email.aenqueue(Email("anna")))  # R: Handle[str]
    reveal_type(send_parcel.enqueue(Parcel(1)))  # R: Handle[int]


@app.job(SEND_EMAIL)  # E: arg-type
async def wrong_payload(parcel: Parcel) -> None: ...


async def wrong() -> None:
    await app.producer(SEND_EMAIL).aenqueue(Parcel(1))  # E: arg-type
    await app.producer(SEND_EMAIL).aenqueue()  # E: call-arg
    await app.producer(SEND_EMAIL).aenqueue("anna")  # E: arg-type
    await send_email.aenqueue(Parcel(1))  # E: arg-type
    reveal_type(await app.producer("send_email").aenqueue({"to": "anna"}))  # R: Handle[Any]
    await app.aenqueue(SEND_EMAIL, Email("anna"))
    await app.aenqueue(SEND_EMAIL, Parcel(1))  # E: misc
    app.producer(5)  # E: call-overload
