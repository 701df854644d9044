"""Owns the options of `@app.job(...)`: their defaults, and which go together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any, Literal

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


@dataclass(frozen=True, kw_only=True)
class JobOptions:
    """The options given to `@app.job(...)`."""

    name: str | None = None
    aliases: tuple[str, ...] = ()
    queue: str = DEFAULT_QUEUE
    priority: int = 0
    retry: Retry | None = None
    max_retries: int | None = None
    errors: Classes = field(default_factory=dict)
    timeout: Duration | None = DEFAULT
    middleware: tuple[Middleware, ...] = ()
    isolate: bool | None = None
    cpu_bound: bool = False
    memory: Size | None = None
    grace: Duration | None = None
    batch_size: int | None = None
    batch_timeout: Duration = DEFAULT_BATCH_TIMEOUT
    key: Key | None = None
    rate: str | None = None
    burst: int | None = None
    concurrency: int | None = None
    per: Per | None = None
    limit: str | None = None
    units: int = 1
    ordered: bool = False
    breaker: Breaker | str | None = None
    fair_by: Key | None = None
    weights: Weights | None = None
    slo: Duration | None = None
    unique: Key | Unique | None = None
    idempotency_key: Key | None = None
    idempotent: Literal["result"] | None = None
    tags: tuple[str, ...] = ()

    @property
    def isolated(self) -> bool | None:
        """Whether the handler runs in a child process; None leaves that to the app."""
        return self.isolate if not (self.cpu_bound or self.memory) else True


def read_options(given: dict[str, Any]) -> JobOptions:
    """Return keyword arguments as options.

    Raises:
        ConfigError: there is no such option.
    """
    known = {each.name for each in fields(JobOptions)}
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
