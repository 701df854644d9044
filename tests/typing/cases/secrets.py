"""Secrets: only a secret is taken where one is wanted, and what it hides keeps its type."""

from typing import reveal_type

from windlass import Secret, Windlass

app = Windlass("memory://")


@app.job
async def charge(card: Secret[str], amount: int) -> Secret[str]:
    reveal_type(card.reveal())  # R: str
    return Secret("receipt")


async def right() -> None:
    reveal_type(await charge.aenqueue(card=Secret("4111"), amount=3))  # R: Handle[Secret[str]]
    reveal_type(Secret({"a": 1}).reveal())  # R: dict[str, int]
    charge.enqueue(Secret("4111"), 3)


async def wrong() -> None:
    charge.enqueue(card="4111", amount=3)  # E: arg-type
    charge.enqueue(card=Secret(4111), amount=3)  # E: arg-type
    await charge.aenqueue("4111", 3)  # E: arg-type
    len(Secret("4111"))  # E: arg-type
