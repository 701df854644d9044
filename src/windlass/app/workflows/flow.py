"""Owns flows as users build them: jobs that wait for each other, enqueued as a whole."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from uuid import UUID

import msgspec
from msgspec.structs import replace

from windlass.app.handle import Handle
from windlass.app.producer import Draft, checked_draft, iterable
from windlass.app.registration.job_decorator import builtin
from windlass.app.registration.kind import BuiltinKind
from windlass.core.errors import FlowInvalid, PermanentError
from windlass.core.jobs.ids import member_id
from windlass.core.jobs.job import NewJob
from windlass.core.jobs.outcomes import Cancel
from windlass.core.values.names import check_name
from windlass.core.workflows import flow_graph as graphs
from windlass.core.workflows.flow_graph import (
    AFTER,
    FLOW_KIND,
    POLICIES,
    Chart,
    Graph,
    OnFailure,
    topic_of,
)
from windlass.core.workflows.flow_result import FlowResult, concluded
from windlass.handlers.context import Context
from windlass.store import store_of_job

if TYPE_CHECKING:
    from windlass.app.app import Windlass

R = TypeVar("R")
_GRAPH = BuiltinKind(FLOW_KIND, Graph)


class Node(Generic[R]):
    """A job of a flow, which others can wait for: `flow.add(draft, after=[node])`."""

    __slots__ = ("_draft", "_flow", "_undo", "_waits", "name", "number")

    def __init__(
        self,
        flow: Flow,
        number: int,
        draft: Draft[R],
        name: str,
        waits: tuple[graphs.Edge, ...],
        undo: Draft[Any] | None,
    ) -> None:
        self._flow = flow
        self._draft = draft
        self._waits = waits
        self._undo = undo
        self.number = number
        """Its number in the flow, from 1 on."""
        self.name = name

    @property
    def id(self) -> UUID:
        """The id that its job has, or will have."""
        return member_id(self._flow.id, self.number)

    @property
    def handle(self) -> Handle[R]:
        """The handle on its job, of use once the flow is enqueued."""
        return Handle(self._flow._app, self.id, self._draft.hint)

    def __repr__(self) -> str:
        """Show its name and number."""
        return f"Node({self.name!r}, {self.number})"


class After:
    """A parent, and the fate of the child if that one fails, whatever holds for the others.

    Example:
        `flow.add(report.draft(), after=[load, After(enrich, on_failure="continue")])`
    """

    __slots__ = ("node", "on_failure")

    def __init__(self, node: Node[Any], *, on_failure: OnFailure) -> None:
        self.node = node
        self.on_failure = _policy(on_failure)


class Flow:
    """Jobs that wait for each other, enqueued together or not at all. Made by `app.flow(name)`.

    A parent that is dead or cancelled has failed. Then `on_failure` decides about each child:
    `cancel` cancels it, `continue` runs it anyway, and `compensate` cancels all waiting jobs
    and, once no job of the flow runs, runs the `undo` of every completed job, those of children
    before those of their parents. The `on_failure` of the flow is the default for its jobs, and
    applies to the jobs without children.
    """

    def __init__(
        self,
        app: Windlass,
        name: str,
        *,
        queue: str | None = None,
        on_failure: OnFailure = "cancel",
    ) -> None:
        self._app = app
        self._on_failure = _policy(on_failure)
        self._queue = queue
        self._nodes: list[Node[Any]] = []
        self._last: list[Draft[Any]] = []
        self._is_closed = False
        self.name = check_name("flow", name)
        self.id = app.ids.next_flow()
        """The id of the flow, and of its own job."""
        self._origin = app.ids.origin()

    def add(
        self,
        draft: Draft[R],
        *,
        after: Iterable[Node[Any] | After] = (),
        on_failure: OnFailure | None = None,
        undo: Draft[Any] | None = None,
        name: str | None = None,
    ) -> Node[R]:
        """Add a job, which starts when all jobs in `after` have ended, and return its node.

        Its handler gets their results, in their order, by `await ctx.results()`. `undo` is the job
        that undoes it in a flow that is compensated; it gets the one result. The name is what
        `windlass flows show` calls it: the kind, unless one is given.

        Raises:
            FlowInvalid: a parent is not in this flow or is named twice, the job is unique, its undo
                could expire, or the flow was enqueued already.
        """
        self._refuse_late(checked_draft("a job of a flow", draft).job)
        if undo is not None:
            checked_draft("undo", undo)
        if isinstance(after, Node | After):
            raise TypeError(f"after must be a list of nodes, got {after!r}; write after=[...]")
        policy = self._on_failure if on_failure is None else _policy(on_failure)
        parents = [(self._number(each), _policy_of(each, policy)) for each in after]
        called = check_name("job of a flow", draft.job.kind if name is None else name)
        if len({number for number, _ in parents}) < len(parents):
            raise FlowInvalid(f"{called!r} depends on a job twice; name each parent once")
        for each in (draft, *([] if undo is None else [undo])):
            _refuse_unique(each.job)
        if undo is not None:
            _refuse_expiring(undo.job)
        number = len(self._nodes) + 1
        node = Node(self, number, draft, called, graphs.edges_of(parents), undo)
        self._nodes.append(node)
        return node

    def on_finished(self, draft: Draft[Any]) -> None:
        """Run a job when all others have ended, however they did, and what was undone is undone.

        `await ctx.results()` gives it the results of all jobs, in the order in which they were
        added. Cancelling the flow cancels it, too.

        Raises:
            FlowInvalid: the job is unique, or the flow was enqueued already.
        """
        self._refuse_late(checked_draft("a job of a flow", draft).job)
        _refuse_unique(draft.job)
        self._last.append(draft)

    def enqueue(self, *, tx: object = None) -> Handle[FlowResult]:
        """Enqueue all jobs, or none, from blocking code; the handle is that of the flow itself.

        `tx` is a connection of your own, in whose transaction it happens: see `Producer.using`. To
        enqueue a flow twice is to enqueue it once.

        Raises:
            FlowInvalid: there are no jobs, or too many.
            EnqueueUncertain: the store did not answer within `enqueue_timeout`; enqueue it again.
            StoreError: the store did not take them, and has not written any.
            CalledFromEventLoop: this would block an event loop.
        """
        return self._app.enqueue_many(self._drafts(), tx=tx)[0]

    async def aenqueue(self, *, tx: object = None) -> Handle[FlowResult]:
        """Enqueue all jobs, or none, from a coroutine; the handle is that of the flow itself.

        Raises:
            FlowInvalid: there are no jobs, or too many.
            EnqueueUncertain: the store did not answer within `enqueue_timeout`; enqueue it again.
            StoreError: the store did not take them, and has not written any.
        """
        return (await self._app.aenqueue_many(self._drafts(), tx=tx))[0]

    def __repr__(self) -> str:
        """Show its name, its id and how many jobs it has."""
        return f"Flow({self.name!r}, {self.id}, {len(self._nodes):,} jobs)"

    # -- the jobs as they are enqueued ---------------------------------------------------------

    def _drafts(self) -> list[Draft[Any]]:
        chart = Chart(self._graph())
        # Even if the store does not answer it may have them: later additions would be orphans.
        self._is_closed = True
        return [self._own(chart.graph), *self._members(chart)]

    def _graph(self) -> Graph:
        nodes = [
            graphs.Node(
                name=node.name,
                kind=node._draft.job.kind,
                after=node._waits,
                undo="" if node._undo is None else node._undo.job.kind,
            )
            for node in self._nodes
        ]
        last = [graphs.Node(name=each.job.kind, kind=each.job.kind) for each in self._last]
        return graphs.built(self.name, nodes, last, on_failure=self._on_failure)

    def _own(self, graph: Graph) -> Draft[FlowResult]:
        job = NewJob(
            id=self.id,
            kind=FLOW_KIND,
            payload=msgspec.json.encode(graph),
            queue=self._queue or self._nodes[0]._draft.job.queue,
            waiting_for=topic_of(self.id),
            origin=self._origin,
        )
        return Draft(job=job, hint=FlowResult)

    def _members(self, chart: Chart) -> list[Draft[Any]]:
        jobs, undos, last = [], [], []
        for stage, depth in zip(chart.jobs, chart.depths, strict=True):
            waits_for, after = graphs.wait_of(self.id, stage), graphs.numbers_of(stage.after)
            undo_wait = graphs.undo_wait_of(self.id, depth)
            for offset in range(stage.count):
                number = stage.first + offset
                node = self._nodes[number - 1]
                jobs.append(self._member(node._draft, number, waits_for, after))
                if node._undo is not None:
                    undo = self._member(node._undo, stage.undo + offset, undo_wait, str(number))
                    undos.append(undo)
        for stage, draft in zip(chart.last, self._last, strict=True):
            wait = graphs.wait_of(self.id, stage)
            last.append(self._member(draft, stage.first, wait, f"1-{chart.size}"))
        return [*jobs, *undos, *last]

    def _member(
        self, draft: Draft[Any], number: int, waiting_for: str | None, after: str
    ) -> Draft[Any]:
        headers = {**draft.job.headers, AFTER: after} if after else draft.job.headers
        job = replace(
            draft.job, id=member_id(self.id, number), waiting_for=waiting_for, headers=headers
        )
        return Draft(job=job, hint=draft.hint)

    def _refuse_late(self, job: NewJob) -> None:
        if self._is_closed:
            raise FlowInvalid(
                f"the flow {self.name!r} is already enqueued, so {job.kind!r} cannot be added; "
                "add it before enqueue(), or to another flow"
            )

    def _number(self, parent: Node[Any] | After) -> int:
        node = parent.node if isinstance(parent, After) else parent
        if getattr(node, "_flow", None) is not self:
            raise FlowInvalid(
                f"{node!r} is not in the flow {self.name!r}; pass nodes that its add() returned"
            )
        return node.number


def chain(app: Windlass, drafts: Sequence[Draft[Any]], *, on_failure: OnFailure, name: str) -> Flow:
    """Return a flow of jobs one after the other; each gets the result of the one before."""
    flow = Flow(app, name, on_failure=on_failure)
    before: list[Node[Any]] = []
    for draft in drafts:
        before = [flow.add(draft, after=before)]
    return flow


def group(
    app: Windlass,
    drafts: Iterable[Draft[Any]],
    *,
    then: Draft[Any] | None,
    on_failure: OnFailure,
    name: str,
) -> Flow:
    """Return a flow of jobs side by side, and one that gets all of their results."""
    flow = Flow(app, name, on_failure=on_failure)
    nodes = [flow.add(draft) for draft in iterable(drafts)]
    if then is not None:
        flow.add(then, after=nodes)
    return flow


def register(app: Windlass) -> None:
    """Register the kind of flows' own jobs, whose handler sums up the result of a flow."""
    if FLOW_KIND in app.registry:
        return

    @builtin(app, _GRAPH)
    async def conclude(ctx: Context, graph: Graph) -> FlowResult | Cancel:
        topic = topic_of(ctx.job_id)
        store = await store_of_job(app.store, ctx.job_id)
        record = (await store.records(topic)).get(topic)
        if record is None:
            raise PermanentError(
                "the outcomes of this flow's jobs are no longer kept; WINDLASS_RETENTION sets "
                "how long they are"
            )
        conclusion = concluded(Chart(graph), record)
        if conclusion.ending == "undo_failed":
            raise PermanentError(conclusion.reason)
        if conclusion.ending == "completed":
            return conclusion.result
        return Cancel(conclusion.reason)


def _policy_of(parent: Node[Any] | After, on_failure: OnFailure) -> OnFailure:
    return parent.on_failure if isinstance(parent, After) else on_failure


def _policy(on_failure: OnFailure) -> OnFailure:
    if on_failure not in POLICIES:
        raise FlowInvalid(f"on_failure must be one of {', '.join(POLICIES)}, got {on_failure!r}")
    return on_failure


def _refuse_unique(job: NewJob) -> None:
    if job.unique is not None:
        raise FlowInvalid(
            f"{job.kind!r} has a unique key, so it might not be added and the flow would never "
            "finish; give it an idempotency key instead"
        )


def _refuse_expiring(undo: NewJob) -> None:
    if undo.expires is not None:
        raise FlowInvalid(
            f"{undo.kind!r} has `expires`, so it might expire before it can undo anything; leave "
            "out `expires` for an undo"
        )
