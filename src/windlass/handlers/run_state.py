"""Owns the internal state of one run: cancellation, steps, secrets, ending."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from windlass.core.errors import InvalidTransition, StepError
from windlass.core.jobs.job import Job
from windlass.core.payloads.secret import secrets_in, texts_of
from windlass.handlers.steps import StepEnvironment, StepRunner
from windlass.handlers.streams import RunStream

if TYPE_CHECKING:
    from windlass.handlers.run_environment import RunEnvironment


class RunState:
    """The worker's view of a run; `Context` shows its handler a part of it."""

    # Class attributes: most runs change none of these, and setting them for each run would be slow.
    secrets: tuple[str, ...] = ()
    """Texts to mask: the secrets among the arguments."""
    settled: bool = False
    """Whether the job was completed by a transaction of its handler."""
    is_cancelled: bool = False
    timeout_error: TimeoutError | None = None
    """The error of a run whose timeout is over."""
    steps: StepRunner | None = None
    """None before the handler's first step."""
    stream: RunStream | None = None
    """None before the handler's first chunk."""
    main_task: asyncio.Task[Any] | None = None
    thread_id: int = 0
    log_finished: Callable[[], None] | None = None
    """Logs the success of a run once its result is accepted."""
    _in_transaction: bool = False

    def __init__(
        self, job: Job, environment: RunEnvironment, step_environment: StepEnvironment | None
    ) -> None:
        self.job = job
        self.environment = environment
        self.redaction = environment.redaction
        """Masks the text that this run leaves behind."""
        self._step_environment = step_environment

    @property
    def is_over(self) -> bool:
        """Whether the run itself has stored the job's next state."""
        suspended = None if self.steps is None else self.steps.suspended
        return self.settled or (suspended is not None and suspended.outcome is None)

    def cancel(self, error: TimeoutError | None) -> None:
        """Record that the run is to end, with the error if its timeout is over."""
        self.is_cancelled = True
        self.timeout_error = error

    def start_steps(self) -> StepRunner:
        """Return the runner of this run's steps.

        Raises:
            StepError: the kind is handled in batches.
        """
        if self.steps is None:
            if self._step_environment is None:
                raise StepError(
                    f"{self.job.kind!r} is handled in batches, and a batch has no steps; use "
                    "steps in a kind without batch_size="
                )
            self.steps = StepRunner(self, self._step_environment)
        return self.steps

    def end_steps(self) -> None:
        """Check at the end of the handler that it has left out no recorded step.

        Raises: StepsChanged: a step was left out.
        """
        if self.steps is not None or self.job.steps:
            self.start_steps().end()

    def start_stream(self) -> RunStream:
        """Return the stream of this run.

        Raises: InvalidTransition: a transaction has completed the job.
        """
        if self.settled:
            remedy = "stream before the end of ctx.transaction()"
            raise InvalidTransition(self.job.id, "completed", "stream a chunk", remedy)
        if self.stream is None:
            self.stream = RunStream(self, self.environment.streams)
        return self.stream

    async def flush_stream(self) -> None:
        """Return once what the run has streamed is in the store.

        Raises: LeaseLost: the lease was lost, and another worker has the job.
        """
        if self.stream is not None:
            await self.stream.flush()

    def mask_secrets_in(self, value: Any) -> None:
        """Mask the secrets in arguments, or in a step's result, wherever this run shows them."""
        texts = tuple(text for secret in secrets_in(value) for text in texts_of(secret))
        self.secrets += texts
        self.redaction = self.redaction.knowing(texts)

    def begin_transaction(self) -> None:
        """Record that a transaction that completes the job is open.

        Raises: InvalidTransition: another one is open, or has completed the job.
        """
        if self.settled or self._in_transaction:
            state = "completed" if self.settled else "being completed"
            remedy = "do all of the job's work in one ctx.transaction()"
            raise InvalidTransition(self.job.id, state, "begin a transaction", remedy)
        self._in_transaction = True

    def end_transaction(self, *, settled: bool) -> None:
        """Record that the transaction is over, and whether it has completed the job."""
        self._in_transaction = False
        self.settled = settled
