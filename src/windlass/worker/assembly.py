"""Owns how the parts of a worker are put together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from windlass.core.autoscale import SLOTS_PAUSES
from windlass.core.jobs.bulk import RECORD as BULK
from windlass.core.jobs.job import EVENT, FLOW
from windlass.core.schedules.definition import Schedule
from windlass.handlers.idempotency import DoneBefore
from windlass.handlers.parent_results import StoredParentResults
from windlass.handlers.provided import Provided, Providers
from windlass.handlers.registry import Middleware, Registry
from windlass.handlers.run_environment import RunEnvironment
from windlass.handlers.streams import StreamEnvironment
from windlass.observability.meters import Meters
from windlass.process.clocks import ClockGauge
from windlass.process.outage import Outage
from windlass.process.service import Service
from windlass.store import Store
from windlass.worker.burst import Burst
from windlass.worker.engine.claimer import Claimer
from windlass.worker.engine.deadlines import Deadlines
from windlass.worker.engine.engine import Engine
from windlass.worker.engine.executor import CANCEL_GRACE, Executor
from windlass.worker.engine.settler import Settler
from windlass.worker.engine.threads import Threads
from windlass.worker.engine.writing.checkpointer import Checkpointer
from windlass.worker.engine.writing.completer import Completer
from windlass.worker.engine.writing.streamer import Streamer
from windlass.worker.heartbeat import Heartbeat
from windlass.worker.isolation.child_pool import ChildPool
from windlass.worker.lease import Lease
from windlass.worker.options import WorkerOptions
from windlass.worker.policies.breaker_gate import BreakerGate
from windlass.worker.policies.gate import Gate, Gates
from windlass.worker.policies.limit_gate import LimitGate
from windlass.worker.policies.slo_counter import SloCounter
from windlass.worker.policies.slot_scaler import SlotScaler
from windlass.worker.services.bulk_operations import BulkOperations
from windlass.worker.services.cluster_sampler import ClusterSampler
from windlass.worker.services.crash_suspects import CrashSuspects
from windlass.worker.services.event_delivery import EventDelivery
from windlass.worker.services.flow_advancer import FlowAdvancer
from windlass.worker.services.housekeeping import AuditPruner, Pruner, SchemaWatch, UnservedKinds
from windlass.worker.services.kind_stats_recorder import KindStatsRecorder
from windlass.worker.services.operator_requests import OperatorRequests
from windlass.worker.services.orphaned_claims import OrphanedClaims
from windlass.worker.services.outbox_relay import AlarmHandler, NewsHandler, OutboxRelay
from windlass.worker.services.progress_reporter import ProgressReporter
from windlass.worker.services.rescuer import Rescuer
from windlass.worker.services.schedules.schedule_ticker import ScheduleTicker
from windlass.worker.state import WorkerState
from windlass.worker.status import WorkerStatus

_BEAT_INTERVAL = timedelta(seconds=0.25)
"""Interval at which a worker sends its supervisor a sign of life."""


class WorkerSetup(Struct, frozen=True, kw_only=True):
    """Everything a worker is built from: given by its app, and the same for its whole life."""

    store: Store
    registry: Registry
    options: WorkerOptions
    middleware: Sequence[Middleware]
    providers: Providers
    child_pool: ChildPool
    schedules: Mapping[str, Schedule]
    ids: Callable[[], UUID]
    """Makes the ids of jobs; a function, since the generator belongs to the app's layer."""
    meters: Meters
    settler: Settler
    outage: Outage


class WorkerParts(Struct, frozen=True, kw_only=True):
    """The parts of a worker that it starts and stops."""

    engine: Engine
    gates: Sequence[Gate]
    threads: Threads
    provided: Provided
    lease: Lease
    status: WorkerStatus
    heartbeat: Heartbeat
    requests: OperatorRequests
    orphans: OrphanedClaims
    ticker: ScheduleTicker
    chores: Sequence[Service]
    """The services that do not touch a job on its way, in the order in which they start."""
    scalers: Sequence[Service]


def assemble(setup: WorkerSetup, state: WorkerState) -> WorkerParts:
    """Make the parts of a worker, inside of its event loop.

    Raises:
        ConfigError: a kind names a breaker, or a limit, that is not defined.
    """
    store, options, registry = setup.store, setup.options, setup.registry
    clock, threads = ClockGauge(), Threads(options.threads, state)
    provided = Provided(setup.providers)
    handlers: dict[str, NewsHandler] = {FLOW: FlowAdvancer(store), EVENT: EventDelivery(store)}
    relay, bulk = OutboxRelay(store, handlers), BulkOperations(store)
    ticker = _ticker(setup, state, {**handlers, BULK: bulk}, clock)
    gates = _gates(setup, state)
    engine = _engine(
        setup, state, gates=gates, relay=relay, ticker=ticker, threads=threads, provided=provided
    )
    requests = OperatorRequests(store, engine, state=state, registry=registry)
    interval = options.lease / 3
    orphans = OrphanedClaims(store, interval=interval, state=state, engine=engine)
    pruner = Pruner(store, options.retention, state=state)
    chores = [requests, ticker, bulk, *_chores(setup, state, engine), pruner, orphans, relay]
    if options.burst:
        chores.append(Burst(store, state, engine=engine, relay=relay, ticker=ticker, bulk=bulk))
    lease = Lease(
        store,
        options,
        state,
        registry=registry,
        engine=engine,
        ticker=ticker,
        pruner=pruner,
        outage=setup.outage,
    )
    status = WorkerStatus(store, state, options, setup.meters, clock)
    heartbeat = _heartbeat(setup, state, status, lease)
    status.attach(engine, heartbeat, requests)
    return WorkerParts(
        engine=engine,
        gates=gates,
        threads=threads,
        provided=provided,
        lease=lease,
        status=status,
        heartbeat=heartbeat,
        requests=requests,
        orphans=orphans,
        ticker=ticker,
        chores=chores,
        scalers=_scalers(options, state, engine),
    )


def _scalers(options: WorkerOptions, state: WorkerState, engine: Engine) -> list[Service]:
    if options.concurrency.fixed:
        return []
    return [SlotScaler(options.concurrency, SLOTS_PAUSES, state=state, demand=engine.demand)]


def _gates(setup: WorkerSetup, state: WorkerState) -> list[Gate]:
    gates: list[Gate] = []
    if rules := setup.registry.rules():
        gates.append(BreakerGate(setup.store, rules, state=state, settler=setup.settler))
    if setup.registry.is_limited:
        lease = setup.options.lease
        gates.append(LimitGate(setup.store, setup.registry, state=state, lease=lease))
    return gates


def _obey(state: WorkerState, gates: Gates) -> None:
    state.policies = replace(
        state.policies,
        allowances=gates.allowances,
        lets=gates.lets,
        bars=gates.bars,
        unspent=gates.unspent,
    )


def _engine(
    setup: WorkerSetup,
    state: WorkerState,
    *,
    gates: Sequence[Gate],
    relay: OutboxRelay,
    ticker: ScheduleTicker,
    threads: Threads,
    provided: Provided,
) -> Engine:
    store, options, registry, meters = setup.store, setup.options, setup.registry, setup.meters
    all_gates = Gates(gates)
    if all_gates:
        _obey(state, all_gates)
    engine = Engine(
        state,
        options=options,
        registry=registry,
        settler=setup.settler,
        gates=all_gates,
        slo=SloCounter(store, state.policies.targets, meters=meters),
        relay=relay,
        ticker=ticker,
        meters=meters,
    )
    engine.reporter = ProgressReporter(store, engine)
    engine.checkpointer = Checkpointer(store, engine)
    engine.streamer = Streamer(store, engine)
    engine.completer = Completer(store, engine, state=state, meters=meters)
    if state.begun_jobs is not None:
        state.begun_jobs.live = lambda: state.runs.begun_jobs() + engine.completer.unwritten_jobs()
    engine.executor = Executor(
        state,
        registry=registry,
        middleware=setup.middleware,
        threads=threads,
        child_pool=setup.child_pool,
        checkpointer=engine.checkpointer,
        deadlines=Deadlines(engine, registry, options.timeout),
        environment=_run_environment(setup, engine, provided),
    )
    engine.claimer = Claimer(
        store,
        engine,
        state=state,
        meters=meters,
        claim_size=options.claim_size,
        poll_interval=options.poll_interval,
    )
    return engine


def _run_environment(setup: WorkerSetup, engine: Engine, provided: Provided) -> RunEnvironment:
    store, loop, limits = setup.store, asyncio.get_running_loop(), setup.options.stream_limits
    return RunEnvironment(
        report=engine.reporter.report,
        transact=store.transaction,
        done=DoneBefore(lambda: store, loop),
        results=StoredParentResults(lambda: store, setup.registry, loop),
        streams=StreamEnvironment(append=engine.streamer.submit, loop=loop, limits=limits),
        provided=provided,
        redaction=setup.options.redaction,
        max_result=setup.options.max_result,
    )


def _ticker(
    setup: WorkerSetup, state: WorkerState, handlers: Mapping[str, AlarmHandler], clock: ClockGauge
) -> ScheduleTicker:
    return ScheduleTicker(
        setup.store,
        kinds=state.policies.kinds,
        declared=setup.schedules,
        ids=setup.ids,
        others=handlers,
        clock=clock,
        traces=setup.options.traces,
    )


def _chores(setup: WorkerSetup, state: WorkerState, engine: Engine) -> list[Service]:
    store, interval = setup.store, setup.options.lease / 3
    recorder = KindStatsRecorder(store, setup.meters)
    chores: list[Service] = [
        Rescuer(
            store,
            interval=interval,
            state=state,
            settler=setup.settler,
            completer=engine.completer,
        ),
        CrashSuspects(store, engine, interval=interval),
        AuditPruner(store, setup.options.audit_retention),
        UnservedKinds(store, known=state.policies.kinds),
        SchemaWatch(store, state),
        recorder,
        ClusterSampler(store, state=state, recorder=recorder),
    ]
    return [*chores, engine.slo] if engine.slo else chores


def _heartbeat(
    setup: WorkerSetup, state: WorkerState, status: WorkerStatus, lease: Lease
) -> Heartbeat:
    duration, channel = setup.options.lease, state.channel
    heartbeat = Heartbeat(
        status.renew if channel is None else channel.renewing(status.renew, duration),
        interval=duration / 3 if channel is None else _BEAT_INTERVAL,
        # A supervisor ends a process that is stuck; without a supervisor, the heartbeat stops
        # instead.
        patience=loop_patience(setup.registry, setup.options) if channel is None else None,
        state=state,
        status=status,
        lease=lease,
        outage=setup.outage,
    )
    if channel is not None:
        channel.loop_lag = lambda: heartbeat.lag
    return heartbeat


def loop_patience(registry: Registry, options: WorkerOptions) -> timedelta | None:
    """Return how long the event loop may be blocked before the worker counts as stuck."""
    timeouts = [registry[kind].timeout_or(options.timeout) for kind in registry]
    limits = [timeout for timeout in timeouts if timeout is not None]
    if len(limits) < len(timeouts):
        return None
    graces = [registry[kind].grace_or(CANCEL_GRACE) for kind in registry]
    longest = max(limits, default=timedelta(0)) + max(graces, default=CANCEL_GRACE)
    return longest + options.lease
