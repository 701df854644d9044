"""Ask a question, approve the answer, and show what the model was asked for."""

from __future__ import annotations

import asyncio
import json

from examples.agent_pipeline.app import MODEL, answer, app
from windlass import State


async def main() -> None:
    """Run the example from start to end."""
    worker = asyncio.create_task(app.arun_worker(concurrency=10))
    try:
        handle = await answer.aenqueue("What are a windlass and its pawl?")
        while (job := await handle.ainfo()).waiting_for != f"event:verdict:{handle.id}":
            assert job.state is not State.DEAD, job.reason
            await asyncio.sleep(0.02)
        await app.asend_event(f"verdict:{handle.id}", "good")
        print(await handle.aresult("30s"))
        steps = [json.loads(entry)["name"] for entry in (await handle.ainfo()).steps]
        print(f"steps: {', '.join(dict.fromkeys(step.partition(':')[0] for step in steps))}")
        print(f"calls of the model: {MODEL.calls}")
    finally:
        worker.cancel()
        await asyncio.wait({worker})
        await app.aclose()


if __name__ == "__main__":
    asyncio.run(main())
