"""Owns what is examined of each unfinished job: its kind, queue, payload, keys and steps."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING

from windlass.app.deploy_check.report import CheckFinding, Concerned, Subject
from windlass.app.deploy_check.step_names import StepNames
from windlass.app.masking import redaction_of
from windlass.app.secrets.key_rotation import sealed_by
from windlass.app.workflows.pipeline import PIPELINE, Pipeline
from windlass.core.errors import PayloadInvalid, UnknownKind
from windlass.core.jobs.job import Job, Lane
from windlass.core.values.text import listed, plural
from windlass.core.workflows.step_log import Steps

if TYPE_CHECKING:
    from windlass.app.app import Windlass

_MAX_TEXT = 300


class JobExamination:
    """The findings about jobs, put together as the jobs come."""

    def __init__(self, app: Windlass) -> None:
        self._app = app
        self._registry = app.registry
        self._redaction = redaction_of(app)
        self._keys = {key.id for key in app.settings.encryption_keys}
        self._kinds: dict[str, Concerned] = defaultdict(Concerned)
        self._queues: dict[str, Concerned] = defaultdict(Concerned)
        self._payloads: dict[tuple[str, str], Concerned] = defaultdict(Concerned)
        self._sealed: dict[str, Concerned] = defaultdict(Concerned)
        self._steps: dict[tuple[str, str], Concerned] = defaultdict(Concerned)
        self._unreadable = Concerned()
        self._names: dict[str, StepNames] = {}

    def add_lane(self, lane: Lane) -> None:
        """Examine the kind and the queue of pending jobs that were not read."""
        if lane.kind not in self._registry:
            self._kinds.setdefault(lane.kind, Concerned())
        if not self._is_served(lane.queue):
            self._queues.setdefault(lane.queue, Concerned())

    def add(self, job: Job) -> None:
        """Examine a job."""
        if not self._is_served(job.queue):
            self._queues[job.queue].add(job.id)
        if job.kind not in self._registry:
            self._kinds[job.kind].add(job.id)
            return
        text = job.payload + "".join(job.steps).encode()
        if missing := sealed_by(text) - self._keys:
            for key in missing:
                self._sealed[key].add(job.id)
        else:
            self._decode(job)
        if job.steps:
            self._examine_steps(job)

    def findings(self) -> Iterator[CheckFinding]:
        """Return what the new code does not serve."""
        for kind, jobs in sorted(self._kinds.items()):
            yield self._of_kind(kind, jobs)
        for queue, jobs in sorted(self._queues.items()):
            yield _of_queue(queue, jobs)
        for key, jobs in sorted(self._sealed.items()):
            yield _of_key(key, jobs)
        for (kind, why), jobs in sorted(self._payloads.items()):
            yield _of_payload(kind, why, jobs)
        for (kind, step), jobs in sorted(self._steps.items()):
            yield _of_step(kind, step, jobs)
        if self._unreadable.count:
            yield _of_step_log(self._unreadable)

    def _is_served(self, queue: str) -> bool:
        settings = self._app.settings
        named = {each.queue for each in settings.queues}
        return (not named or queue in named) and queue not in settings.exclude

    def _decode(self, job: Job) -> None:
        try:
            value = self._registry[job.kind].target.codec.decode(job.payload, kind=job.kind)
        except PayloadInvalid as error:
            field = f"field {error.field!r}: " if error.field else ""
            why = self._redaction.text(f"{field}{error.reason}")[:_MAX_TEXT]
            self._payloads[job.kind, why].add(job.id)
            return
        if job.kind == PIPELINE.name and isinstance(value, Pipeline):
            for kind in {stage.kind for stage in value.steps} - set(self._registry):
                self._kinds[kind].add(job.id)

    def _examine_steps(self, job: Job) -> None:
        steps = Steps(job.steps)
        if steps.unreadable:
            self._unreadable.add(job.id)
        module = self._registry[job.kind].module
        names = self._names.get(module) or self._names.setdefault(module, StepNames(module))
        for step in steps.names:
            if not names.may_have(step):
                self._steps[job.kind, step].add(job.id)

    def _of_kind(self, kind: str, jobs: Concerned) -> CheckFinding:
        near: tuple[str, ...] = ()
        try:
            self._registry[kind]
        except UnknownKind as error:
            near = error.args[1]
        meant = f" (similar: {listed(near)})" if near else ""
        return _finding(
            "kind",
            kind,
            f"{_named(jobs, f'kind {kind!r}')}, which has no handler in the new code{meant}",
            "keep its handler until they are done; if it was renamed, add "
            f"aliases=[{kind!r}] to the new one; or windlass jobs cancel --kind "
            f"{shlex.quote(kind)}",
            jobs,
        )


def _of_queue(queue: str, jobs: Concerned) -> CheckFinding:
    return _finding(
        "queue",
        queue,
        f"{_named(jobs, f'queue {queue!r}')}, which the new workers do not serve",
        f"start a worker for it: --queues {shlex.quote(queue)}; if another group of workers "
        "serves it, give all their queues to windlass check by --queues",
        jobs,
    )


def _of_key(key: str, jobs: Concerned) -> CheckFinding:
    return _finding(
        "key",
        key,
        f"{_named(jobs, f'encryption key {key!r}')}, which is not configured here",
        "add it to WINDLASS_ENCRYPTION_KEYS, behind the first one, here and for the new workers; "
        "or windlass keys rotate with both keys, which does not reach secrets in recorded steps",
        jobs,
    )


def _of_payload(kind: str, why: str, jobs: Concerned) -> CheckFinding:
    return _finding(
        "payload",
        kind,
        f"{plural(jobs.count, 'job')} of kind {kind!r} cannot be decoded by the new code: {why}",
        "let the handler accept both forms: give a new parameter a default, keep a removed one "
        f"until the old jobs are done, or give the changed code another kind; windlass jobs show "
        f"{jobs.examples[0]}",
        jobs,
    )


def _of_step(kind: str, step: str, jobs: Concerned) -> CheckFinding:
    return _finding(
        "step",
        kind,
        f"{plural(jobs.count, 'job')} of kind {kind!r} recorded the step {step!r}, which no code "
        "of the project calls any more: they would die with StepsChanged",
        "keep the names and the order of recorded steps, and add new ones after them; or give the "
        "changed code another kind",
        jobs,
    )


def _of_step_log(jobs: Concerned) -> CheckFinding:
    return _finding(
        "step",
        "",
        f"{plural(jobs.count, 'job')} recorded steps with entries that this release of windlass "
        "cannot read",
        "deploy a release that is at least as new as the one that runs them now",
        jobs,
    )


def _named(jobs: Concerned, of: str) -> str:
    """Name jobs; those of a lane that were not read have no number."""
    return f"{plural(jobs.count, 'job')} of {of}" if jobs.count else f"jobs of {of}"


def _finding(
    subject: Subject, name: str, problem: str, remedy: str, jobs: Concerned
) -> CheckFinding:
    return CheckFinding(
        subject=subject,
        name=name,
        problem=problem,
        remedy=remedy,
        jobs=jobs.count,
        examples=tuple(jobs.examples),
    )
