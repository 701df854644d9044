"""Owns the view of a flow: its graph, and the state of each of its jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from uuid import UUID

from msgspec import Struct

from windlass.core.errors import FlowInvalid, UnknownJob
from windlass.core.jobs.ids import number_of
from windlass.core.jobs.job import Job
from windlass.core.jobs.states import State
from windlass.core.records import Json
from windlass.core.workflows.flow_graph import FLOW_KIND, Chart, ids_of, topic_of, wait_of
from windlass.core.workflows.flow_progress import begun
from windlass.store import StoreQueries
from windlass.worker.services.flow_advancer import chart_in

WAITING, UNDER_WAY, FORGOTTEN = "waiting", "under way", "not kept"
"""Words that are no states: waits for others; pending or running; finished, and deleted."""
_WORDS = {
    ".": WAITING,
    "h": WAITING,
    "f": UNDER_WAY,
    "c": State.COMPLETED.value,
    "d": State.DEAD.value,
    "x": State.CANCELLED.value,
    "k": State.CANCELLED.value,
}
_CHUNK = 1_000
_MAX_SMALL_FLOW = 20


class FlowView(Struct, frozen=True, kw_only=True):
    """A flow, and a word for each of its jobs by their numbers, of which 0 is its own."""

    job: Job
    chart: Chart
    words: Sequence[str]

    def counts(self, first: int, end: int) -> Counter[str]:
        """Count the words of jobs with numbers in a row."""
        return Counter(self.words[first:end])

    @property
    def own_counts(self) -> Counter[str]:
        """Count the words of all jobs but undos."""
        behind = self.chart.size + self.chart.undos + 1
        return self.counts(1, self.chart.size + 1) + self.counts(behind, len(self.words))


async def view_of(store: StoreQueries, flow: UUID) -> FlowView:
    """Return the view of a flow; of a large one, without exact states of every job.

    Raises:
        UnknownJob: there is none.
        FlowInvalid: it is a job of another kind.
    """
    job = await store.get(flow)
    if job is None:
        raise UnknownJob(flow)
    if job.kind != FLOW_KIND:
        part_of = f"it is part of flow {job.flow}" if job.flow else "it is a plain job"
        raise FlowInvalid(f"{flow} is not a flow: {part_of}")
    return await viewed(store, job, closely=True)


async def viewed(store: StoreQueries, job: Job, *, closely: bool = False) -> FlowView:
    """Return the view of a flow by its own job; `closely` also reads jobs that its record leaves
    open.

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
            unknown = unknown[:_CHUNK]
        for start in range(0, len(unknown), _CHUNK):
            ids = list(ids_of(job.id, unknown[start : start + _CHUNK]))
            for each in (await store.get_many(ids)).values():
                words[number_of(each.id)] = _word_of(each)
    return FlowView(job=job, chart=chart, words=words)


async def before(store: StoreQueries, job: Job) -> list[Job]:
    """Return some jobs of a flow that come before one of it and could run, in order.

    Of a flow's own job that is dead: the undos that failed, since it only sums up.
    """
    if job.flow is None or not (job.waiting_for or job.state is State.DEAD):
        return []
    own = job if job.id == job.flow else await store.get(job.flow)
    topic = topic_of(job.flow)
    record = (await store.records(topic)).get(topic)
    if own is None:
        return []
    try:
        chart = chart_in(own.payload)
        # There is a record once the first of its jobs has ended.
        states = (begun(chart) if record is None else record)["states"]
        numbers = _before(chart, states, job, job.flow)
    except FlowInvalid:
        return []
    ids = list(ids_of(job.flow, numbers[:_MAX_SMALL_FLOW]))
    found = await store.get_many(ids)
    return [found[each] for each in ids if each in found]


def _before(chart: Chart, states: str, job: Job, flow: UUID) -> list[int]:
    if job.state is State.DEAD:
        undos = range(chart.size + 1, chart.size + chart.undos + 1)
        return [each for each in undos if job.id == flow and states[each] == "d"]
    stage = next((each for each in chart.jobs if wait_of(flow, each) == job.waiting_for), None)
    parents = (
        []
        if stage is None
        else [number for edge in stage.after for number in range(edge.first, edge.last + 1)]
    )
    free = [each for each in parents if states[each] == "f"]
    return free or [each for each, letter in enumerate(states) if letter == "f"]


def _words_in(record: Json | None, chart: Chart) -> list[str]:
    if record is None:
        return [FORGOTTEN] * (chart.total + 1)
    return [_WORDS[letter] for letter in record["states"]]


def _word_of(job: Job) -> str:
    parked = job.state is State.SCHEDULED and job.waiting_for is not None
    return WAITING if parked else job.state.value
