"""A pool is short if all who would run what waits for it have none left, and not otherwise."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.core.stats.recorded import NOW, mail, queue, record, runs, stats, worker
from windlass.core.claims.lanes import Head
from windlass.core.jobs.job import Lane
from windlass.core.metrics.cluster_series import series_of
from windlass.core.policies.pauses import Pauses
from windlass.core.stats.cluster_sample import SampleInputs, sampled
from windlass.core.stats.depths import Depths
from windlass.core.stats.kind_history import RECORD
from windlass.core.stats.shortage import shortages
from windlass.core.workers import WorkerPulse

LANE = Lane("mail", "send")
FULL = WorkerPulse(running=2, in_threads=2)


def blocking(name: str = "w", *, pulse: WorkerPulse = FULL, **told: Any) -> Any:
    usual: dict[str, Any] = {
        "slots": 100,
        "pools": {"send": "threads"},
        "threads": 2,
        "isolated_processes": 2,
    }
    return worker(name, pulse=pulse, **usual | told)


def test_threads_are_short_while_jobs_wait_for_one_and_all_are_in_use() -> None:
    (found,) = shortages([blocking()], [LANE, LANE._replace(key="k")])
    assert (found.pool, found.count, found.kinds, found.workers) == (
        "threads",
        2,
        ("send",),
        ("w",),
    )
    assert found.message == "all 2 threads are in use, and jobs of kind send are waiting for one"
    assert "--threads N" in found.remedy
    assert "WORKER_COUNT" in found.remedy


@pytest.mark.parametrize(
    ("workers", "waiting"),
    [
        ([blocking()], []),
        ([blocking()], [Lane("mail", "async_kind")]),
        ([blocking(), blocking("other", pulse=WorkerPulse(running=1, in_threads=1))], [LANE]),
        ([blocking(), blocking("other", pools={})], [LANE]),
        ([blocking(threads=None)], [LANE]),
        ([blocking(alive=False)], [LANE]),
        ([blocking(pulse=WorkerPulse(running=2, in_threads=2, state="draining"))], [LANE]),
    ],
    ids=["nothing waits", "others wait", "one is free", "one runs it in its loop", "not told",
         "gone", "draining"],
)  # fmt: skip
def test_nothing_is_short_otherwise(workers: Any, waiting: Any) -> None:
    assert shortages(workers, waiting) == ()


def test_paused_jobs_do_not_count_as_waiting_for_a_thread() -> None:
    assert stats(queue(), workers=(blocking(),), waiting=[LANE]).short
    paused = Pauses(queues=frozenset({"mail"}))
    assert not stats(queue(), workers=(blocking(),), waiting=[LANE], pauses=paused).short


def test_the_room_for_a_queue_of_def_handlers_is_its_threads() -> None:
    found = mail(queue(), workers=(blocking(),))
    assert found.slots == 2
    assert found.threads_needed == found.slots_needed == pytest.approx(5.0, rel=0.07)
    assert found.isolated_processes_needed == 0.0
    assert mail(queue(), workers=(blocking(pools={}),)).slots == 100


def test_free_slots_drain_nothing_where_threads_are_short() -> None:
    """98 free slots would have drained a hundred jobs of two seconds in two."""
    young = queue(oldest=1.0, arrival_rate=0.0, service_rate=1.0)
    assert mail(young, workers=(blocking(),)).seconds_to_empty == pytest.approx(100.0)


def test_a_mixed_queue_has_room_as_its_kinds_are_mixed() -> None:
    kinds = {
        RECORD + "send": record(runs(100, 1.0)),
        RECORD + "note": record(runs(100, 3.0)),
    }
    found = stats(queue(), workers=(blocking(kinds=("note", "send")),), kinds=kinds)
    assert found.queues[0].slots == 8, "of four seconds one is in a thread, of which there are two"
    assert found.slots_needed is not None
    assert found.threads_needed == pytest.approx(found.slots_needed / 4, rel=0.07)


def test_prometheus_is_shown_which_kinds_wait_for_which_pool() -> None:
    facts = SampleInputs(
        now=NOW,
        depths=Depths(counts=()),
        heads=[Head(lane=LANE, position=NOW)],
        workers=[blocking()],
        pauses=Pauses(),
        stats={},
    )
    sample = msgspec.to_builtins(sampled(facts, None, by="w"))
    assert series_of(sample, age=0.0)["windlass_kind_short"] == {("send", "threads"): 1.0}
    idle = msgspec.structs.replace(facts, workers=[blocking(pulse=WorkerPulse())])
    sample = msgspec.to_builtins(sampled(idle, None, by="w"))
    assert series_of(sample, age=0.0)["windlass_kind_short"] == {}
