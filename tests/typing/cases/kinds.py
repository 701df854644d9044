"""Kinds: producers give their payload, handlers take it."""

from dataclasses import dataclass
from typing import reveal_type

from windlass import Context, Kind, Windlass

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
def send_parcel(ctx: Context, parcel: Parcel) -> int:
    return parcel.weight


async def right() -> None:
    reveal_type(SEND_EMAIL)  # R: Kind[cases.kinds.Email]
    reveal_type(await app.of(SEND_EMAIL).aenqueue(Email("anna")))  # R: Handle[Any]
    reveal_type(await send_email.aenqueue(Email("anna")))  # R: Handle[str]
    reveal_type(send_parcel.enqueue(Parcel(1)))  # R: Handle[int]


@app.job(SEND_EMAIL)  # E: arg-type
async def wrong_payload(parcel: Parcel) -> None: ...


async def wrong() -> None:
    await app.of(SEND_EMAIL).aenqueue(Parcel(1))  # E: arg-type
    await app.of(SEND_EMAIL).aenqueue()  # E: call-arg
    await app.of(SEND_EMAIL).aenqueue("anna")  # E: arg-type
    await send_email.aenqueue(Parcel(1))  # E: arg-type
    app.of("send_email")  # E: arg-type
