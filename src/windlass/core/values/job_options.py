"""Owns the validation of job options: one check and one message for each, wherever it is given.

`@app.job(...)`, `handler.using(...)`, `Retry(...)`, job classes and schedules all ask here, before
anything reaches a store. A check returns the value, or raises a ValueError that names the remedy.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from windlass.core.values.durations import duration
from windlass.core.values.sizes import human_size, size

MAX_RETRIES = 1_000_000
MAX_PRIORITY = 1_000
MAX_BATCH = 100_000
MAX_TAGS = 10
MAX_TAG_CHARACTERS = 100
MIN_MEMORY = 16 * 10**6
"""Bytes; a child process takes more than that before its handler begins."""


def checked_max_retries(value: object) -> int:
    """Return how often a job is tried again."""
    return _whole("max_retries", value, 0, MAX_RETRIES, "write 0 to run a job only once")


def checked_priority(value: object) -> int:
    """Return how urgent a job is."""
    remedy = "greater is more urgent, the default is 0"
    return _whole("priority", value, -MAX_PRIORITY, MAX_PRIORITY, remedy)


def checked_batch(value: object) -> int:
    """Return how many jobs one call takes at most."""
    remedy = "one call takes up to batch_size jobs, and no more than a worker has slots"
    return _whole("batch_size", value, 1, MAX_BATCH, remedy)


def checked_memory(value: object) -> int:
    """Return how many bytes a run may take."""
    if not isinstance(value, str | int) or isinstance(value, bool):
        raise _refused("memory", "an amount of memory", value, "write it like '512MB'")
    count = size(value)
    if count < MIN_MEMORY:
        remedy = "a number is in bytes, so write it like '512MB'"
        raise _refused("memory", f"at least {human_size(MIN_MEMORY)}", value, remedy)
    return count


def checked_timeout(value: object) -> timedelta:
    """Return how long a run may take."""
    span = checked_duration("timeout", value)
    if not span:
        remedy = "@app.job(timeout=None) lets a job run without one"
        raise _refused("timeout", "greater than zero", value, remedy)
    return span


def checked_duration(name: str, value: object) -> timedelta:
    """Return a span of time."""
    if not isinstance(value, timedelta | str | int | float) or isinstance(value, bool):
        raise _refused(name, "a duration", value, "write it like '30s' or 30")
    return duration(value, name)


def checked_switch(name: str, value: object) -> bool:
    """Return what is either on or off."""
    if not isinstance(value, bool):
        raise _refused(name, "True or False", value, "leave it out for the default")
    return value


def checked_callables(name: str, values: Iterable[Any]) -> tuple[Any, ...]:
    """Return a list of what can be called."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise _refused(name, "a list", values, f"write {name}=[...]")
    found = tuple(values)
    for each in found:
        if not callable(each):
            remedy = "write functions like `async def log_run(ctx, call_next)`"
            raise _refused(name, "a list of callables", each, remedy)
    return found


def checked_tags(values: object) -> tuple[str, ...]:
    """Return the tags of a job, each once."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise _refused("tags", "a list of names", values, "write tags=['vip']")
    tags: tuple[Any, ...] = tuple(dict.fromkeys(values))
    if len(tags) > MAX_TAGS:
        remedy = "put what is particular to a job into its payload, and search for that"
        raise _refused("tags", f"at most {MAX_TAGS}", len(tags), remedy)
    for tag in tags:
        if not isinstance(tag, str) or tag != tag.strip() or not tag or not tag.isprintable():
            remedy = "write tags=['vip']"
            raise _refused("each of tags", "a printable name without spaces around", tag, remedy)
        if len(tag) > MAX_TAG_CHARACTERS or "," in tag:
            condition = f"at most {MAX_TAG_CHARACTERS} characters without a comma"
            raise _refused("each of tags", condition, tag, "make two of it, or shorten it")
    return tags


def _whole(name: str, value: object, least: int, most: int, remedy: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        condition = f"a whole number between {least:,} and {most:,}"
        raise _refused(name, condition, value, remedy)
    return value


def _refused(name: str, condition: str, value: object, remedy: str) -> ValueError:
    return ValueError(f"{name} must be {condition}, got {value!r}; {remedy}")
