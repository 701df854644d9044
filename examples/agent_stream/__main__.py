"""Ask a question, and show the answer while it is written."""

from __future__ import annotations

import asyncio

from examples.agent_stream.app import MODEL, answer, app
from windlass import StreamRestart


async def main() -> None:
    """Run the example from start to end."""
    async with app.running(concurrency=10):
        handle = await answer.aenqueue("rope")
        async for chunk in handle.astream(timeout="60s"):
            if isinstance(chunk, StreamRestart):
                print(f"\n[attempt {chunk.attempt}: keep {chunk.kept} chunks, discard the others]")
            else:
                print(chunk, end="", flush=True)
        print(f"\nresult: {await handle.aresult('30s')}")
        print(f"uses of the tool: {MODEL.lookups}")
    await app.aclose()


if __name__ == "__main__":
    asyncio.run(main())
