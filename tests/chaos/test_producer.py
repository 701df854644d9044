"""The producer: no more jobs than ordered, at no more than the ordered rate."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter
from pathlib import Path

import msgspec

from tests.support.worker_processes import until
from windlass import Windlass
from windlass.chaos.ledger import Ledger
from windlass.chaos.processes import environment
from windlass.chaos.terms import Order

ORDER = Order(number=1, seed=7, jobs=100, seconds=60.0, transfers=False)


def test_jobs_are_due_evenly_and_at_half_the_rate_after_the_time_of_the_order() -> None:
    assert [ORDER.due(count) for count in (0, 50, 100)] == [0.0, 30.0, 60.0]
    assert ORDER.due(150) == 120.0


def test_a_large_order_goes_on_with_a_few_jobs_in_a_second() -> None:
    large = msgspec.structs.replace(ORDER, jobs=60_000)

    assert large.due(60_000 + 15 * 10) == 70.0


def test_a_producer_in_the_place_of_another_has_the_rest_of_the_order() -> None:
    assert ORDER.rest(0.0) == ORDER
    assert [ORDER.rest(passed).enqueued for passed in (15.0, 60.0, 120.0)] == [25, 100, 150]
    for passed in (15.0, 60.0, 120.0):
        assert ORDER.due(ORDER.rest(passed).enqueued) == passed


def test_no_call_is_made_before_its_first_job_is_due(tmp_path: Path) -> None:
    """Prevents rounds that enqueue a multiple of a small order."""
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    asyncio.run(_migrate(url))
    order = msgspec.structs.replace(ORDER, jobs=60, seconds=2.0)
    ledger = Ledger(tmp_path / "ledger")
    process = subprocess.Popen(
        [sys.executable, "-m", "windlass.chaos.producer", msgspec.json.encode(order).decode()],
        env=environment(url, tmp_path / "ledger"),
    )
    until(lambda: _count(ledger) > order.jobs, "more jobs than ordered")
    process.terminate()
    process.wait()

    entries = ledger.entries()
    (ready,) = (entry.at for entry in entries if entry.what == "ready")
    accepted, keyed = 0, ("unique", "ordered")
    for entry in entries:
        # Jobs with keys are enqueued six at a time, one after the other.
        if entry.what == "offered" and entry.name not in keyed:
            assert order.due(accepted) <= entry.at - ready
        accepted += entry.what == "accepted"
    assert Counter(entry.what for entry in entries)["accepted"] > order.jobs


async def _migrate(url: str) -> None:
    app = Windlass(url)
    await app.store.migrate()
    await app.aclose()


def _count(ledger: Ledger) -> int:
    return sum(entry.what == "accepted" for entry in ledger.entries())
