"""Owns the look at a flow: its graph, and how it stands with each of its jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from windlass.core.errors import FlowInvalid, UnknownJob
from windlass.core.flow import FLOW_KIND, Chart, ids_of, topic_of
from windlass.core.job import Job, Json, number_of
from windlass.core.states import State
from windlass.runtime.flows import chart_in
from windlass.store import Store

WAITING, UNDER_WAY, FORGOTTEN = "waiting", "under way", "not kept"
"""Words for what is no state: waits for others; pending or running; finished, and deleted."""
_WORDS = {
    ".": WAITING,
    "h": WAITING,
    "f": UNDER_WAY,
    "c": State.COMPLETED.value,
    "d": State.DEAD.value,
    "x": State.CANCELLED.value,
    "k": State.CANCELLED.value,
}
_AT_ONCE = 1_000


@dataclass(frozen=True, kw_only=True)
class FlowView:
    """A flow, and a word for each of its jobs by their numbers, of which 0 is its own."""

    job: Job
    chart: Chart
    words: Sequence[str]

    def counts(self, first: int, end: int) -> Counter[str]:
        """Count the words of jobs with numbers in a row."""
        return Counter(self.words[first:end])

    @property
    def own_counts(self) -> Counter[str]:
        """Count those of all jobs but of those that undo others."""
        behind = self.chart.size + self.chart.undos + 1
        return self.counts(1, self.chart.size + 1) + self.counts(behind, len(self.words))


async def view_of(store: Store, flow: UUID) -> FlowView:
    """Look at a flow, and at each of its jobs as far as that is told apart for few only.

    Raises:
        UnknownJob: there is none.
        FlowInvalid: it is a job of another kind.
    """
    job = await store.get(flow)
    if job is None:
        raise UnknownJob(flow)
    if job.kind != FLOW_KIND:
        part_of = f"it belongs to the flow {job.flow}" if job.flow else "it is a plain job"
        raise FlowInvalid(f"{flow} is no flow: {part_of}")
    return await viewed(store, job, closely=True)


async def viewed(store: Store, job: Job, *, closely: bool = False) -> FlowView:
    """Look at a flow by its own job; closely: also at jobs of which its record does not tell.

    Raises:
        FlowInvalid: its graph cannot be read.
    """
    chart = chart_in(job.payload)
    topic = topic_of(job.id)
    record = (await store.records(topic)).get(topic)
    words = _words_in(record, chart)
    if closely:
        unknown = [number for number, word in enumerate(words) if word in (UNDER_WAY, FORGOTTEN)]
        if record is not None:
            unknown = unknown[:_AT_ONCE]
        for start in range(0, len(unknown), _AT_ONCE):
            ids = list(ids_of(job.id, unknown[start : start + _AT_ONCE]))
            for each in (await store.get_many(ids)).values():
                words[number_of(each.id)] = _word_of(each)
    return FlowView(job=job, chart=chart, words=words)


def _words_in(record: Json | None, chart: Chart) -> list[str]:
    if record is None:
        return [FORGOTTEN] * (chart.total + 1)
    return [_WORDS[letter] for letter in record["states"]]


def _word_of(job: Job) -> str:
    parked = job.state is State.SCHEDULED and job.waiting_for is not None
    return WAITING if parked else job.state.value
