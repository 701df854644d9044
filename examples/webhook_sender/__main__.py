"""Publish events to two subscribers, one of which goes away for a while."""

from __future__ import annotations

import asyncio

from examples.notifier.partner import Partner
from examples.webhook_sender.app import app, publish


async def main() -> None:
    """Run the example from start to end."""
    with Partner() as quick, Partner(500, 500) as unwell:
        async with app.running(threads=8):
            urls = {"billing": quick.url, "crm": unwell.url}
            for number in range(5):
                await publish.aenqueue(f"order {number}", urls)
            await until_delivered(quick, unwell, 5)
            print("both subscribers have five events, each of them once")
            unwell.go()
            for number in range(5, 10):
                await publish.aenqueue(f"order {number}", {"crm": unwell.url})
            while {"webhook.crm"} != {  # noqa: ASYNC110
                each.name for each in await app.control.abreakers() if each.state == "open"
            }:
                await asyncio.sleep(0.05)
            print("a subscriber is away: its breaker is open, and no other")
            unwell.come()
            await until_delivered(quick, unwell, 10)
            print("it is back, and has all ten")
    await app.aclose()


async def until_delivered(quick: Partner, unwell: Partner, events: int) -> None:
    """Wait until a subscriber has this many events, and the other one at least five."""
    while len(unwell.got) < events or len(quick.got) < 5:  # noqa: ASYNC110
        await asyncio.sleep(0.05)


if __name__ == "__main__":
    asyncio.run(main())
