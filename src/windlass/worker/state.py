"""Owns what the parts of one worker share: its id, slots, policies, runs, counts and end."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from windlass.core.claims.plan import Policies
from windlass.core.records import Json
from windlass.process.supervisor_channel import Leaving, Message, Registered, SupervisorChannel
from windlass.process.tasks import is_cancelled
from windlass.worker.engine.runs import Runs


class WorkerState:
    """The state of one worker, read and changed by its parts."""

    def __init__(
        self, policies: Policies, *, slots: int, channel: SupervisorChannel | None = None
    ) -> None:
        self.policies = policies
        self.slots = slots
        """Number of jobs that may run at once; the slot scaler changes it."""
        self.channel = channel
        self.begun_jobs = None if channel is None else channel.begun_jobs
        """Where the jobs that have begun are listed for a supervisor, if there is one."""
        self.id = ""
        """The id under which the worker holds its lease; empty between two leases."""
        self.runs = Runs()
        self.draining = False
        """Whether no job is started any more; jobs that a claim still brings are given back."""
        self.processed = 0
        """Number of runs that have ended."""
        self.fenced = 0
        """Number of writes that were rejected because the lease was lost."""
        self.claim_again = asyncio.Event()
        """Set when a claim may bring jobs that the last one could not: a run ended, tokens came."""
        self.stopping = asyncio.Event()
        self.task: asyncio.Task[Any] | None = None
        """The task in which the worker serves."""
        self.store_answered_at = time.monotonic()
        self.renewed_at = 0.0
        self.sample: Json | None = None
        """The cluster-wide figures, as they were read last."""
        self.sampled_at = 0.0
        self.store_findings: tuple[str, ...] = ()
        """Names of the problems that the last look at the store found."""

    @property
    def serves(self) -> bool:
        """Whether the worker claims jobs: it has a lease and does not drain."""
        return self.id != "" and not self.draining

    @property
    def program_is_ending(self) -> bool:
        """Whether the program around the worker ends, and cancels the worker's task."""
        return is_cancelled(self.task)

    def store_answered(self) -> None:
        """Record that the store has just answered."""
        self.store_answered_at = time.monotonic()

    def sampled(self, sample: Json, age: float) -> None:
        """Keep cluster-wide figures that were made `age` seconds ago."""
        self.sampled_at = time.monotonic() - age
        self.sample = sample

    def registered(self, worker: str) -> None:
        """Record that the worker has a lease under this id."""
        self.id = worker
        self.renewed_at = time.monotonic()
        self.tell_supervisor(Registered(worker))

    def tell_supervisor(self, message: Message) -> None:
        """Send a message to the supervisor, if there is one."""
        if self.channel is not None:
            self.channel.say(message)

    def leave(self, reason: str, *, replace: bool) -> None:
        """Begin a graceful end; `replace` asks the supervisor for a worker in its place."""
        if not self.stopping.is_set():
            self.tell_supervisor(Leaving(reason, replace=replace))
            self.stopping.set()
