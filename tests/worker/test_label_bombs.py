"""Whatever queues and kinds are called, and however many: the metrics stay few, and readable."""

from __future__ import annotations

import asyncio
import urllib.request
from collections import defaultdict

import pytest

from tests.support.app_on_store import Bed, in_state, serving, until
from tests.support.exposition import parse
from tests.support.label_bombs import PRINTABLE, plant
from windlass import State
from windlass.core.metrics.exposition import LABEL_LIMIT, NAMES
from windlass.observability.meters import MAX_PAIRS

JOBS = 10_000
KINDS = NAMES + 50


def fetch(where: str) -> str:
    with urllib.request.urlopen(f"http://{where}/metrics", timeout=10) as answer:
        text: str = answer.read().decode()
    return text


@pytest.fixture
def page(bed: Bed) -> str:
    """What a worker tells that has run jobs with hostile names, and sees thousands of others."""
    assert bed.url, "a database is made here, since that takes an event loop of its own"
    app = bed.app(store=bed.store(size=2 * JOBS), metrics_port=22_000)
    served = [f"{PRINTABLE[n % len(PRINTABLE)]}{n}" for n in range(KINDS)]

    async def run() -> None: ...

    kinds = [app.job(name=name, queue=name)(run) for name in served]

    async def main() -> str:
        if bed.kind == "memory":
            await plant(app, JOBS // 20, unstorable=True)  # It looks at every lane for each claim.
        else:
            await plant(app, JOBS, unstorable=False)
        async with serving(app, name="bombed") as worker:
            for kind in kinds:
                last = await kind.aenqueue()
            await in_state(last, State.COMPLETED, within=90)
            await until(lambda: worker._state.sample is not None, within=60)
            await until(lambda: worker.processed == KINDS, within=90)
            return await asyncio.to_thread(fetch, worker._parts.status.address)

    return asyncio.run(main())


@pytest.mark.parametrize(
    "bed", ["memory", "sqlite", pytest.param("postgres", marks=pytest.mark.long)], indirect=True
)
def test_label_bombs_are_bounded_and_parse(page: str) -> None:
    """Torture 48: ten thousand hostile names of queues and kinds, on the real endpoint."""
    samples = parse(page)
    assert not [each for each in samples if "forged" in each.name]
    values: dict[tuple[str, str], set[str]] = defaultdict(set)
    series: dict[str, set[tuple[str, ...]]] = defaultdict(set)
    for each in samples:
        labels = dict(each.labels)
        for label, value in labels.items():
            values[each.family, label].add(value)
            assert len(value) <= LABEL_LIMIT
            assert value.isprintable()
        labels.pop("le", None)
        series[each.name].add(tuple(labels.values()))
    assert {len(each) <= NAMES + 1 for each in values.values()} == {True}
    assert len(values["windlass_queue_jobs", "queue"]) == NAMES + 1, "there are that many"
    assert len(values["windlass_jobs_completed_total", "kind"]) == NAMES + 1
    assert max(map(len, series.values())) <= MAX_PAIRS
    completed = [each for each in samples if each.name == "windlass_jobs_completed_total"]
    assert sum(each.value for each in completed) == KINDS, "each is counted, if only as other"
    assert len(page) < 10_000_000
