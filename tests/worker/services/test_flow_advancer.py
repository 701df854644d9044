"""The progress of flows on a store that lost what a worker remembers."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

from windlass import State, Windlass
from windlass.core.records import News
from windlass.testing.conformance import ManualClock
from windlass.testing.conformance.bench import Bench
from windlass.worker.services.flow_advancer import FlowAdvancer


def copy(source: Path, target: Path) -> None:
    with closing(sqlite3.connect(source)) as here, closing(sqlite3.connect(target)) as there:
        here.backup(there)


def test_a_flow_goes_on_after_a_failover_that_lost_its_record(tmp_path: Path) -> None:
    """Prevents a flow that hangs for ever: a worker had seen its record on the former primary."""
    file, replica = tmp_path / "jobs.db", tmp_path / "replica.db"
    app = Windlass(f"sqlite:///{file}")

    @app.job
    async def step(number: int) -> int:
        return number

    async def main() -> None:
        await app.store.migrate()
        bench = Bench(app.store, ManualClock())
        advancer = FlowAdvancer(app.store)
        flow = app.flow("order")
        first = flow.add(step.draft(1))
        second = flow.add(step.draft(2), after=[first])
        await flow.aenqueue()
        assert await bench.leave(await bench.start_again(first.id))
        copy(file, replica)
        await advancer.hear([f"flow:{flow.id}"])
        assert await bench.state(second.id) is State.PENDING

        copy(replica, file)
        assert await bench.state(second.id) is State.SCHEDULED
        assert await app.store.topics(10) == [f"flow:{flow.id}"]
        await advancer.hear([f"flow:{flow.id}"])
        assert await bench.state(second.id) is State.PENDING
        await app.aclose()

    asyncio.run(main())


def test_a_late_end_of_a_flow_that_is_over_changes_nothing(tmp_path: Path) -> None:
    """Prevents the record of an ended flow from coming back with news that came twice."""
    app = Windlass(f"sqlite:///{tmp_path / 'jobs.db'}")

    @app.job
    async def step(number: int) -> int:
        return number

    async def main() -> None:
        await app.store.migrate()
        bench = Bench(app.store, ManualClock())
        advancer, other = FlowAdvancer(app.store), FlowAdvancer(app.store)
        flow = app.flow("order")
        first = flow.add(step.draft(1))
        second = flow.add(step.draft(2), after=[first])
        topic = f"flow:{flow.id}"
        await flow.aenqueue()
        assert await bench.leave(await bench.start_again(first.id))
        await advancer.hear([topic])
        assert await bench.leave(await bench.start_again(second.id))
        await other.hear([topic])
        assert await bench.leave(await bench.start_again(flow.id))
        await other.hear([topic])
        assert await app.store.records("flow:") == {}
        again = News(topic=topic, id=first.id, body=b'{"state": "completed"}')
        await app.store.send([again])
        await advancer.hear([topic])
        assert await app.store.records("flow:") == {}
        assert await app.store.topics(10) == []
        await app.aclose()

    asyncio.run(main())
