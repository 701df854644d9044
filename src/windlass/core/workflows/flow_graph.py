"""Owns the graph of a flow: its jobs by number, their parents, and their undos.

Numbers begin at 1 with the jobs in the order in which they were added, so that parents come before
their children; then come the undos, then the jobs that run when all others are settled. 0 is the
flow's own job. Alike jobs with consecutive numbers are one stage, so that ten thousand take one
line.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, groupby, pairwise
from typing import Literal
from uuid import UUID

from msgspec import Struct

from windlass.core.errors import FlowInvalid
from windlass.core.jobs.ids import member_id
from windlass.core.jobs.job import FLOW
from windlass.core.values.names import check_name

FLOW_KIND = "windlass.flow"
"""The kind of a flow's own job, which every worker knows."""
AFTER = "windlass-after"
"""The header with the numbers of a job's parents."""
MOST_JOBS = 100_000
"""The most jobs of a flow, undos included."""
MOST_EDGES = 200_000
"""The most ranges of parents in all."""
_MAX_TOUCHED_STAGES = 16
"""The most stages that a range of parents may touch, so that each finds it quickly."""

OnFailure = Literal["cancel", "continue", "compensate"]
"""The fate of a child when a parent is dead or cancelled.

The child is cancelled; or runs all the same; or is cancelled, and completed jobs are undone.
"""
POLICIES: tuple[OnFailure, ...] = ("cancel", "continue", "compensate")


class Edge(Struct, frozen=True, array_like=True, gc=False):
    """Parents with consecutive numbers, and the fate of the child if one of them fails."""

    first: int
    last: int
    on_failure: OnFailure = "cancel"


class Node(Struct, frozen=True, kw_only=True):
    """One job of a flow that is being built."""

    name: str
    kind: str
    after: tuple[Edge, ...] = ()
    undo: str = ""
    """The kind of the job that undoes it."""


class Stage(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Alike jobs with the same parents and consecutive numbers."""

    name: str
    kind: str
    first: int
    count: int = 1
    after: tuple[Edge, ...] = ()
    undo: int = 0
    """The number of the undo of the first; the next one undoes the second."""
    undo_kind: str = ""
    last: bool = False
    """Whether it waits until all others are settled."""

    @property
    def end(self) -> int:
        """The number after its last."""
        return self.first + self.count


class Graph(Struct, frozen=True, kw_only=True):
    """A flow as it was built; it never changes."""

    name: str
    stages: tuple[Stage, ...]
    on_failure: OnFailure = "cancel"
    """The consequence when a job without children fails."""


def built(
    name: str,
    nodes: Sequence[Node],
    last: Sequence[Node] = (),
    *,
    on_failure: OnFailure = "cancel",
) -> Graph:
    """Make the graph of jobs in the order of their numbers, and of those that run at the end.

    Raises:
        FlowInvalid: there are none or too many, or one waits for what does not come before it.
    """
    stages: list[Stage] = []
    undo = len(nodes) + 1
    number = 1
    for node, alike in groupby(nodes):
        count = sum(1 for _ in alike)
        stages.append(
            Stage(
                name=node.name,
                kind=node.kind,
                first=number,
                count=count,
                after=node.after,
                undo=undo if node.undo else 0,
                undo_kind=node.undo,
            )
        )
        number += count
        undo += count if node.undo else 0
    number = undo
    for node in last:
        stages.append(Stage(name=node.name, kind=node.kind, first=number, last=True))
        number += 1
    return checked(Graph(name=name, stages=tuple(stages), on_failure=on_failure))


def checked(graph: Graph) -> Graph:
    """Return a graph in which every job can run.

    Raises:
        FlowInvalid: it is empty or too large, has a cycle, or its numbers or names are wrong.
    """
    try:
        check_name("flow", graph.name)
        for stage in graph.stages:
            check_name("job of a flow", stage.name)
    except ValueError as error:
        raise FlowInvalid(str(error)) from None
    jobs = [stage for stage in graph.stages if not stage.last]
    if not jobs:
        raise FlowInvalid(f"the flow {graph.name!r} has no jobs; add one with flow.add(...)")
    _check_numbers(graph, jobs)
    if sum(len(stage.after) for stage in jobs) > MOST_EDGES:
        raise FlowInvalid(
            f"the flow {graph.name!r} has more than {MOST_EDGES:,} edges; put a joining job "
            "between the parents and their children"
        )
    for stage in jobs:
        _check_parents(stage)
    return graph


def _check_numbers(graph: Graph, jobs: Sequence[Stage]) -> None:
    last = [stage for stage in graph.stages if stage.last]
    undos = [(stage.undo, stage.undo + stage.count) for stage in jobs if stage.undo]
    spans = [*((each.first, each.end) for each in jobs), *undos]
    spans += [(each.first, each.end) for each in last]
    number = 1
    for first, end in spans:
        if first != number or end <= first:
            raise FlowInvalid(f"the jobs of the flow {graph.name!r} must be numbered consecutively")
        number = end
    if number - 1 > MOST_JOBS:
        raise FlowInvalid(
            f"the flow {graph.name!r} has {number - 1:,} jobs, the limit is {MOST_JOBS:,}; let "
            "some of its jobs enqueue flows of their own"
        )


def _check_parents(stage: Stage) -> None:
    for edge in stage.after:
        if not 1 <= edge.first <= edge.last:
            raise FlowInvalid(f"{stage.name!r} depends on jobs that are not in this flow")
        if edge.last >= stage.first:
            raise FlowInvalid(
                f"{stage.name!r} depends on itself through other jobs; remove the cycle"
            )
    spans = sorted((edge.first, edge.last) for edge in stage.after)
    for (_, last), (first, _) in pairwise(spans):
        if first <= last:
            raise FlowInvalid(f"{stage.name!r} depends on a job twice; name each parent once")


def edges_of(parents: Iterable[tuple[int, OnFailure]]) -> tuple[Edge, ...]:
    """Return parents in their order as ranges, where numbers and policies allow that."""
    edges: list[Edge] = []
    for number, on_failure in parents:
        before = edges[-1] if edges else None
        if before is not None and before.last == number - 1 and before.on_failure == on_failure:
            edges[-1] = Edge(before.first, number, on_failure)
        else:
            edges.append(Edge(number, number, on_failure))
    return tuple(edges)


def numbers_of(edges: Iterable[Edge]) -> str:
    """Write the numbers of parents as a header: `1-10000,10005`."""
    return ",".join(
        str(edge.first) if edge.first == edge.last else f"{edge.first}-{edge.last}"
        for edge in edges
    )


def numbers_in(header: str) -> list[int]:
    """Read the numbers of parents from a header."""
    numbers: list[int] = []
    for part in header.split(",") if header else ():
        first, dash, last = part.partition("-")
        begin, end = int(first), int(last if dash else first)
        if not 1 <= begin <= end <= MOST_JOBS or len(numbers) + end - begin >= MOST_JOBS:
            raise ValueError(f"{header!r} is not a list of job numbers")
        numbers.extend(range(begin, end + 1))
    return numbers


class Chart:
    """A graph with lookups that are needed often: children, parents and depths."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.jobs = [stage for stage in graph.stages if not stage.last]
        self.last = [stage for stage in graph.stages if stage.last]
        self.undone = [stage for stage in self.jobs if stage.undo]
        self.size = self.jobs[-1].end - 1
        """How many jobs there are without undos and final ones."""
        self.undos = sum(stage.count for stage in self.undone)
        self.total = self.size + self.undos + len(self.last)
        self.depths = self._depths()
        """The depth of each stage, on the longest path."""
        self.children, self.strict = self._count_children()
        """How many edges leave each number, and how many of these do not continue on failure."""
        self._firsts = [stage.first for stage in self.jobs]
        self._heirs: dict[int, list[int]] = {}
        self._wide: list[int] = []
        for index, stage in enumerate(self.jobs):
            self._find_parents(index, stage)

    def heirs(self, changed: Iterable[int]) -> list[Stage]:
        """Return the stages that may wait for any of the given stages, which are given by index."""
        if not changed:
            return []
        found = {heir for index in changed for heir in self._heirs.get(index, ())}
        return [self.jobs[index] for index in sorted(found.union(self._wide))]

    def stage_of(self, number: int) -> int:
        return bisect_right(self._firsts, number) - 1

    def name_of(self, number: int) -> str:
        """Return the name of a job for people."""
        if number <= self.size:
            return self.jobs[self.stage_of(number)].name
        for stage in self.undone:
            if stage.undo <= number < stage.undo + stage.count:
                return f"undo of {stage.name}"
        return next((stage.name for stage in self.last if stage.first == number), "")

    def _depths(self) -> list[int]:
        by_number = [0] * (self.size + 1)
        known: dict[tuple[int, int], int] = {}
        depths = []
        for stage in self.jobs:
            depth = 0
            for edge in stage.after:
                span = edge.first, edge.last
                if span not in known:
                    known[span] = max(by_number[edge.first : edge.last + 1])
                depth = max(depth, known[span] + 1)
            by_number[stage.first : stage.end] = [depth] * stage.count
            depths.append(depth)
        return depths

    def _count_children(self) -> tuple[list[int], list[int]]:
        edges = [edge for stage in self.jobs for edge in stage.after]
        strict = [edge for edge in edges if edge.on_failure != "continue"]
        return self._covering(edges), self._covering(strict)

    def _covering(self, edges: Iterable[Edge]) -> list[int]:
        steps = [0] * (self.size + 2)
        for edge in edges:
            steps[edge.first] += 1
            steps[edge.last + 1] -= 1
        return list(accumulate(steps))

    def _find_parents(self, index: int, stage: Stage) -> None:
        for edge in stage.after:
            first, last = self.stage_of(edge.first), self.stage_of(edge.last)
            if last - first < _MAX_TOUCHED_STAGES:
                for parent in range(first, last + 1):
                    self._heirs.setdefault(parent, []).append(index)
            elif not self._wide or self._wide[-1] != index:
                self._wide.append(index)


def topic_of(flow: UUID) -> str:
    """Return the name of a flow's record and its news, for which its own job waits."""
    return f"{FLOW}{flow}"


def wait_of(flow: UUID, stage: Stage) -> str | None:
    """Return the key that all jobs of a stage wait for; None: none."""
    if stage.last:
        return f"{topic_of(flow)}:last"
    return f"{topic_of(flow)}:{stage.first}" if stage.after else None


def undo_wait_of(flow: UUID, depth: int) -> str:
    """Return the key that undos wait for: deeper jobs are undone first."""
    return f"{topic_of(flow)}:undo:{depth}"


def held_wait_of(flow: UUID, undo: int) -> str:
    """Return the key of an undo that is due while the job it undoes is dead."""
    return f"{topic_of(flow)}:held:{undo}"


def ids_of(flow: UUID, numbers: Iterable[int]) -> Iterator[UUID]:
    return (member_id(flow, number) for number in numbers)
