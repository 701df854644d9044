"""Send events to a partner who has a bad day, and show what became of each."""

from __future__ import annotations

import asyncio

from examples.notifier.app import app, deliver
from examples.notifier.partner import Answer, Partner
from windlass import JobDead


async def main() -> None:
    """Run the example from start to end."""
    worker = asyncio.create_task(app.arun_worker(threads=4))
    try:
        with Partner() as partner:
            await tell(partner, "all is well")
            await tell(partner, "two errors", 500, 502)
            await tell(partner, "slow", "slow")
            await tell(partner, "too slow", "hang")
            await tell(partner, "nobody wants it", 410)
            await go_through_an_outage(partner)
            print(f"{len(partner.got)} events have arrived, each of them once")
    finally:
        worker.cancel()
        await asyncio.wait({worker})
        await app.aclose()


async def tell(partner: Partner, event: str, *answers: Answer) -> None:
    """Send one event to a partner who answers so."""
    partner.answers[:] = answers
    handle = await deliver.aenqueue(partner.url, event, {"order": "7"})
    try:
        await handle.aresult("60s")
        print(f"{event}: delivered, attempt {(await handle.ainfo()).attempt}")
    except JobDead as error:
        print(f"{event}: dead, {error.error}")


async def go_through_an_outage(partner: Partner) -> None:
    """Send events while the partner is down: the breaker keeps most of them from being tried."""
    partner.go()
    url = partner.url
    handles = [await deliver.aenqueue(url, f"outage {n}", {"order": str(n)}) for n in range(20)]
    while not any(each.state == "open" for each in await app.control.abreakers()):  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    jobs = [await handle.ainfo() for handle in handles]
    print(f"the breaker is open: {sum(job.attempt == 0 for job in jobs)} of 20 wait, uncharged")
    partner.come()
    for handle in handles:
        await handle.aresult("60s")
    print("the partner is back: all 20 are delivered")


if __name__ == "__main__":
    asyncio.run(main())
