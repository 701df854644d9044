"""Owns the options of `@app.job(...)`: their defaults, and which go together."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from msgspec import Struct, field

from windlass.core.errors import ConfigError
from windlass.core.failures.error_classes import Classes
from windlass.core.jobs.job import DEFAULT_QUEUE
from windlass.core.jobs.retry import Retry
from windlass.core.jobs.unique import Unique
from windlass.core.policies.breaker import Breaker
from windlass.core.policies.fairness import Weights
from windlass.core.policies.keys import Key
from windlass.core.policies.limit import Per
from windlass.core.values.durations import Duration
from windlass.core.values.job_options import (
    checked_batch,
    checked_max_retries,
    checked_memory,
    checked_priority,
    checked_switch,
    checked_tags,
)
from windlass.core.values.names import check_name, nearest
from windlass.core.values.sizes import Size
from windlass.handlers.registry import Middleware

DEFAULT: Any = object()
"""Stands for a timeout that was not given, since None means no timeout."""
DEFAULT_BATCH_TIMEOUT: Any = "100ms"


class JobOptions(Struct, frozen=True, kw_only=True):
    """The options given to `@app.job(...)`."""

    name: str | None = None
    """The kind, by which a job finds its handler; with one, the function can be renamed."""
    aliases: tuple[str, ...] = ()
    """Names that the kind had before; their jobs still run."""
    queue: str = DEFAULT_QUEUE
    """The queue in which jobs wait; workers choose the queues that they serve."""
    priority: int = 0
    """-1000 to 1000; greater is more urgent, and one step is worth a minute of waiting."""
    retry: Retry | None = None
    """When and how often a failed job is retried, also by the type of the exception."""
    max_retries: int | None = None
    """Shorthand for `retry=Retry(max_retries=...)`."""
    errors: Classes = field(default_factory=dict)
    """The error classes of exceptions in this kind; they win over those of `app.classify`."""
    timeout: Duration | None = DEFAULT
    """How long a run may take; None, which must be written out, is without limit."""
    middleware: tuple[Middleware, ...] = ()
    """Layers around this handler, inside those of the app."""
    isolate: bool | None = None
    """Whether the handler runs in a child process, which can be killed; None: as the app says."""
    cpu_bound: bool = False
    """Runs the handler in a child process, since it needs a CPU of its own."""
    memory: Size | None = None
    """Runs the handler in a child process that is killed above this much memory, like "512MB"."""
    grace: Duration | None = None
    """How long a run has to end after its timeout or a cancellation."""
    batch_size: int | None = None
    """Gives one call a list of up to this many payloads, each a job of its own."""
    batch_timeout: Duration = DEFAULT_BATCH_TIMEOUT
    """How long the first job of a batch waits for others."""
    key: Key | None = None
    """What limits and fairness go by: the name of an argument, or a function of the arguments."""
    rate: str | None = None
    """How many jobs may start, over all workers, like "10/s": of each key, else of the kind."""
    burst: int | None = None
    """How many jobs of a `rate` may start at once."""
    concurrency: int | None = None
    """How many jobs may run at once, over all workers: of each key, else of the kind."""
    per: Per | None = None
    """Whether `rate` and `concurrency` hold for the "kind" or for each "key"."""
    limit: str | None = None
    """The name of a limit that several kinds share, as defined by `app.limit`."""
    units: int = 1
    """How much of the shared `limit` a job uses."""
    ordered: bool = False
    """Runs the jobs of each key strictly one after the other."""
    breaker: Breaker | str | None = None
    """The circuit breaker that keeps jobs waiting while a dependency is down, or its name."""
    fair_by: Key | None = None
    """The key whose values take turns, like a tenant: an argument, or a function of them."""
    weights: Weights | None = None
    """How many turns each value of `fair_by` has, like `{"acme": 3}`; others have one."""
    slo: Duration | None = None
    """How soon jobs should start; they are pulled forward, and late starts are counted."""
    unique: Key | Unique | None = None
    """The key that one job may hold at a time: an argument, a function of them, or a `Unique`."""
    idempotency_key: Key | None = None
    """The key by which work is known as done: an argument, or a function of the arguments."""
    idempotent: Literal["result"] | None = None
    """"result": a job whose key was completed before takes over its result, and does not run."""
    tags: tuple[str, ...] = ()
    """Words by which jobs are found: `tag:billing`."""

    @property
    def isolated(self) -> bool | None:
        """Whether the handler runs in a child process; None leaves that to the app."""
        return self.isolate if not (self.cpu_bound or self.memory) else True


def read_options(given: dict[str, Any]) -> JobOptions:
    """Return keyword arguments as options.

    Raises:
        ConfigError: there is no such option.
    """
    known = set(JobOptions.__struct_fields__)
    if unknown := sorted(given.keys() - known):
        near = nearest(unknown[0], known)
        hint = f"did you mean {near!r}?" if near else f"there are: {', '.join(sorted(known))}"
        raise ConfigError(f"@app.job has no option {unknown[0]!r}; {hint}")
    if "batch_timeout" in given and given.get("batch_size") is None:
        raise ConfigError(
            "batch_timeout= must be given together with batch_size=, got it alone; add "
            "batch_size=100"
        )
    return JobOptions(**{**given, "aliases": checked_aliases(given.get("aliases", ()))})


def checked_aliases(given: object) -> tuple[Any, ...]:
    """Return the names that a kind had before.

    Raises:
        ConfigError: it is no list.
    """
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ConfigError(f"aliases must be a list of names, got {given!r}; write [{given!r}]")
    return tuple(given)


def check_options(kind: str, options: JobOptions) -> None:
    """Check the options that are plain values; others are checked where they are used.

    Raises:
        ValueError, ConfigError: one of them cannot be; the message names the remedy.
    """
    check_name("kind", kind)
    check_name("queue", options.queue)
    checked_priority(options.priority)
    if options.max_retries is not None:
        checked_max_retries(options.max_retries)
    if options.retry is not None and not isinstance(options.retry, Retry):
        raise ValueError(
            f"retry must be a Retry, got {options.retry!r}; write Retry(max_retries=5)"
        )
    if options.limit is not None:
        check_name("limit", options.limit)
    for name in ("isolate", "cpu_bound", "ordered"):
        if getattr(options, name) is not None:
            checked_switch(name, getattr(options, name))
    if options.batch_size is not None:
        checked_batch(options.batch_size)
    if options.memory is not None:
        checked_memory(options.memory)
    checked_tags(options.tags)
