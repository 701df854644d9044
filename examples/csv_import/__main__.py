"""Import a file of a thousand orders, two of which cannot be read."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from examples.csv_import.app import app, start
from windlass import State

BAD = {204, 777}
"""Numbers of the orders whose amount is not one."""


async def main() -> None:
    """Run the example from start to end."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "orders.csv"
        rows = [f"{number},{'?' if number in BAD else '1.50'}" for number in range(1, 1001)]
        path.write_text("\n".join(["order,amount", *rows]) + "\n")
        async with app.running(concurrency=20):
            started = await start.aenqueue(str(path))
            last = app.handle(await started.aresult("60s"))
            while (await last.ainfo()).state is not State.COMPLETED:
                await show_progress()
                await asyncio.sleep(0.2)
            print(await last.aresult("60s"))
    await app.aclose()


async def show_progress() -> None:
    """Print how far the parts are that have reported it; workers write that twice a second."""
    parts = (await app.jobs.afind(kind="import.part")).jobs
    reported = [part.progress.fraction for part in parts if part.progress is not None]
    if reported:
        print(f"progress: {sum(reported) / len(reported):.0%} of {len(reported)} parts")


if __name__ == "__main__":
    asyncio.run(main())
