"""Let time start some work for a few seconds, and show what it did and will do."""

from __future__ import annotations

import asyncio

from examples.scheduler.app import SEEN, app, report


async def main() -> None:
    """Run the example from start to end."""
    worker = asyncio.create_task(app.arun_worker(concurrency=10))
    try:
        for tenant in ("acme", "globex"):
            await app.schedules.aput(f"report:{tenant}", report.draft(tenant), every="1s")
        wanted = {"looked around", "limped", "reported to acme", "reported to globex"}
        async with asyncio.timeout(30):
            while not wanted <= set(SEEN):  # noqa: ASYNC110 - handlers know nothing of us.
                await asyncio.sleep(0.1)
        await app.schedules.apause("report:globex")
        for name in ("look_around", "limp", "report:acme", "report:globex", "digest"):
            print(f"{name}: {(await app.schedules.aget(name)).state}")
        for moment in await app.schedules.aupcoming("digest", 3):
            print(f"digest at {moment:%H:%M} UTC on a {moment:%A}")
        await (await app.schedules.arun("digest")).aresult("10s")
        print(*sorted(set(SEEN)), sep="\n")
    finally:
        worker.cancel()
        await asyncio.wait({worker})
        await app.aclose()


if __name__ == "__main__":
    asyncio.run(main())
