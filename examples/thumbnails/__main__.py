"""Enqueue some pictures, work on them in this very process, and show what became of them."""

from __future__ import annotations

import asyncio

from examples.thumbnails.app import app, fetch, shrink
from windlass import JobDead


async def main() -> None:
    """Run the example from start to end."""
    worker = asyncio.create_task(app.arun_worker(concurrency=10))
    try:
        names = ["cat.png", "flaky.png", "hen.png"]
        pictures = await app.aenqueue_many(
            [fetch.draft(f"https://example.org/{name}") for name in names]
        )
        for name, picture in zip(names, pictures, strict=True):
            thumbnail = await shrink.using(priority=5).aenqueue(await picture.aresult("30s"), 64)
            print(f"{name}: {await thumbnail.aresult('30s')}")
        try:
            await (await fetch.aenqueue("not a picture")).aresult("30s")
        except JobDead as error:
            print(f"dead: {error.error}")
    finally:
        worker.cancel()
        await asyncio.wait({worker})
        await app.aclose()


if __name__ == "__main__":
    asyncio.run(main())
