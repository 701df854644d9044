"""A checkout as a saga: every step says how it is undone, should a later one fail for good."""

from __future__ import annotations

import os
import tempfile
from datetime import timedelta

from examples.checkout_saga.books import Books
from windlass import (
    Backoff,
    Context,
    EventTimeout,
    Inject,
    PermanentError,
    Retry,
    Windlass,
    current_step,
)

# WINDLASS_URL says where else the jobs may be.
app = Windlass(os.environ.get("WINDLASS_URL", f"sqlite:///{tempfile.gettempdir()}/checkout.db"))
BOOKS = Books()
QUICKLY = Retry(max_retries=2, backoff=Backoff(base=timedelta(milliseconds=100)))


@app.provide
def open_books() -> Books:
    """Provide the books of the shop to handlers."""
    return BOOKS


@app.job(retry=QUICKLY)
async def checkout(ctx: Context, order: str, amount: int, books: Books = Inject) -> str:
    """Reserve, charge, wait for the parcel service, and confirm; or leave everything as it was."""
    await ctx.step("reserve", books.reserve, order, undo=books.release)
    payment = await ctx.step("charge", charge, books, order, amount, undo=refund)
    try:
        parcel = await ctx.wait_for(f"parcel:{order}", timeout="30s")
    except EventTimeout:
        raise PermanentError("the parcel service did not answer") from None
    if parcel["refused"]:
        raise PermanentError(f"the parcel service says: {parcel['refused']}")
    return f"{payment}, parcel {parcel['number']}"


async def charge(books: Books, order: str, amount: int) -> str:
    """Take the money once, however often this is tried: the key stays the same."""
    return books.charge(order, amount, key=current_step().key)


async def refund(books: Books, order: str, amount: int) -> None:
    """Give the money back, if it was taken: the step may not have come so far."""
    books.refund(order, amount, key=current_step().key)
