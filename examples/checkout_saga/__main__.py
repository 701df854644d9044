"""Check two orders out, of which the parcel service refuses one, and show what the books say."""

from __future__ import annotations

import asyncio

from examples.checkout_saga.app import BOOKS, app, checkout
from windlass import JobDead


async def main() -> None:
    """Run the example from start to end."""
    worker = asyncio.create_task(app.arun_worker(concurrency=10))
    try:
        good = await checkout.aenqueue("cup", 12)
        bad = await checkout.aenqueue("piano", 9_000)
        await app.asend_event("parcel:cup", {"number": 17, "refused": None})
        await app.asend_event("parcel:piano", {"number": None, "refused": "too heavy"})
        print("cup:", await good.aresult("30s"))
        try:
            await bad.aresult("30s")
        except JobDead as error:
            print("piano:", error.reason)
        for line in BOOKS.lines:
            print(" ", line)
    finally:
        worker.cancel()
        await asyncio.wait({worker})
        await app.aclose()


if __name__ == "__main__":
    asyncio.run(main())
