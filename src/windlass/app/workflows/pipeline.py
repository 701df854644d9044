"""Owns pipelines: one job that runs kinds one after the other over a context that they share.

Each is a durable step of the job, so that a crash resumes after the last that finished, and each
run of each is in the job's log with its output, or its error, and how long it took.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from windlass.app.producer import Handler, Producer
from windlass.app.registration.job_decorator import builtin
from windlass.app.registration.kind import BuiltinKind, Kind
from windlass.core.claims.room import Pool
from windlass.core.errors import ConfigError, PayloadInvalid
from windlass.core.jobs.outcomes import Cancel, Snooze
from windlass.core.payloads.codec import encode_json
from windlass.core.values.names import check_name
from windlass.handlers.context import Context
from windlass.handlers.registry import Registration, Registry

if TYPE_CHECKING:
    from windlass.app.app import Windlass
    from windlass.app.registration.job_decorator import Given

AnyHandler = Handler[Any, Any, Any, Any]


class Stage(Struct, frozen=True):
    """One step of a pipeline: a kind, and the name under which its output is kept.

    It is called with what it takes by name from the shared context, and with its own `arguments`,
    which win.

    Example:
        `Stage("resize", name="thumbnail", arguments={"width": 128})`
    """

    kind: str
    name: str = ""
    """The name of the step; that of its kind by default."""
    arguments: dict[str, Any] = {}

    def __post_init__(self) -> None:
        check_name("kind", self.kind)
        if self.name:
            check_name("step", self.name)

    @property
    def called(self) -> str:
        """The name of the step."""
        return self.name or self.kind


class Pipeline(Struct, frozen=True, kw_only=True):
    """The payload of a pipeline that is composed when it is enqueued."""

    steps: tuple[Stage, ...]
    context: dict[str, Any] = {}
    """The initial context of the steps."""

    def __post_init__(self) -> None:
        checked(self.steps)


PIPELINE: Kind[Pipeline] = BuiltinKind("windlass.pipeline", Pipeline)
"""The kind of such pipelines: `app.enqueue(PIPELINE, Pipeline(steps=(Stage("fetch"), ...)))`."""


def checked(stages: Sequence[Stage]) -> tuple[Stage, ...]:
    """Return the steps of a pipeline.

    Raises:
        ValueError: there is none, or two have the same name.
    """
    names = [stage.called for stage in stages]
    twice = sorted({name for name in names if names.count(name) > 1})
    if not names:
        raise ValueError("a pipeline must have at least one step")
    if twice:
        raise ValueError(f"two steps are named {twice[0]!r}; give one of them another name=")
    return tuple(stages)


def stages_of(name: str, steps: Sequence[AnyHandler | Stage | str]) -> tuple[Stage, ...]:
    """Return the steps of a pipeline from code, which may be given as handlers or kinds.

    Raises:
        ConfigError: these are no steps.
    """
    stages = []
    for step in steps:
        if isinstance(step, Stage):
            stages.append(step)
        elif isinstance(step, Handler):
            stages.append(Stage(step.kind))
        elif isinstance(step, str):
            stages.append(Stage(step))
        else:
            raise ConfigError(
                f"pipeline {name!r}: a step must be a handler, a kind or a Stage, got {step!r}"
            )
    try:
        return checked(stages)
    except ValueError as error:
        raise ConfigError(f"pipeline {name!r}: {error}") from None


def define(
    app: Windlass, name: str, steps: Sequence[AnyHandler | Stage | str], options: Given
) -> Producer[[dict[str, Any]], Any]:
    """Register a pipeline whose steps are known, and return its producer."""
    stages = stages_of(name, steps)

    async def run(ctx: Context, context: dict[str, Any]) -> Any:
        return await run_pipeline(ctx, app.registry, stages, context)

    run.__qualname__ = run.__name__ = name
    return app.job(name=name, **options)(run)


def register(app: Windlass) -> None:
    """Register the kind of pipelines that are composed when they are enqueued."""
    if PIPELINE.name in app.registry:
        return

    @builtin(app, PIPELINE)
    async def run(ctx: Context, pipeline: Pipeline) -> Any:
        return await run_pipeline(ctx, app.registry, pipeline.steps, pipeline.context)


async def run_pipeline(
    ctx: Context, registry: Registry, stages: Sequence[Stage], context: Mapping[str, Any]
) -> Any:
    """Run the steps of a pipeline, and return the output of the last one.

    A step that returns `Cancel` or `Snooze` ends the run: the job is cancelled, or runs again
    later, from that step on.

    Raises:
        PayloadInvalid: a step's kind is not registered, or its arguments do not fit.
    """
    shared, output = dict(context), None
    kinds = [_known(registry, ctx.kind, stage) for stage in stages]
    for stage, registration in zip(stages, kinds, strict=True):
        arguments = _arguments(stage, registration, shared)
        try:
            output = await ctx.step(stage.called, _call, ctx, registration, arguments)
        except _Ended as ended:
            return ended.outcome
        shared[stage.called] = output
    return output


def _known(registry: Registry, pipeline: str, stage: Stage) -> Registration:
    if stage.kind not in registry:
        reason = f"no handler is registered for {stage.kind!r}; is its module imported here?"
        raise PayloadInvalid(pipeline, f"steps.{stage.called}", reason)
    registration = registry[stage.kind]
    if registration.batch is not None:
        reason = f"{stage.kind!r} handles jobs in batches, so it cannot be a step of a pipeline"
        raise PayloadInvalid(pipeline, f"steps.{stage.called}", reason)
    return registration


def _arguments(
    stage: Stage, registration: Registration, shared: Mapping[str, Any]
) -> dict[str, Any]:
    taken = registration.target.parameters
    found = {name: shared[name] for name in shared if taken is None or name in taken}
    return {**found, **stage.arguments}


class _Ended(BaseException):  # A BaseException is not recorded as a failure of the step.
    """Raised when a step returned an outcome for the job instead of an output."""

    def __init__(self, outcome: Cancel | Snooze) -> None:
        super().__init__(outcome)
        self.outcome = outcome


async def _call(ctx: Context, registration: Registration, arguments: Mapping[str, Any]) -> Any:
    # Encoded and decoded, so that a handler sees the same arguments as in a job of its own.
    output = await _output(ctx, registration, arguments)
    if isinstance(output, Cancel | Snooze):
        raise _Ended(output)
    return output


async def _output(ctx: Context, registration: Registration, arguments: Mapping[str, Any]) -> Any:
    target, kind = registration.target, registration.kind
    value = target.codec.decode(encode_json(kind, dict(arguments)))
    if target.pool is Pool.LOOP:
        return await target.call_here(ctx, value)
    return await target.call_elsewhere(ctx, value, asyncio.to_thread)
