"""A checkout as a saga: each step says how it is undone, should a later one fail for good."""

from __future__ import annotations

from windlass import Context, Windlass, current_step

from examples.checkout_saga.shop import Shop

app = Windlass()


@app.resource
def shop() -> Shop:
    """Open the shop's books, which every worker shares."""
    return Shop("shop.db")
