"""Owns the table of the options of `@app.job` and `using`, with their defaults."""

from __future__ import annotations

import inspect

from msgspec.structs import FieldInfo, fields

from tools.site.reference.chapter import Chapter, Page
from tools.site.reference.docstrings import argument_docs, attribute_docs
from tools.site.reference.markdown import code, marked, table
from windlass.app.producer import Producer
from windlass.app.registration.job_options import JobOptions
from windlass.core.schedules.definition import Manner
from windlass.settings import describe_settings
from windlass.worker.engine.executor import CANCEL_GRACE

_PATH = "reference/options.md"
_GUIDES = {
    "retry": "guide.md#failures-and-retries",
    "errors": "guide.md#error-classes",
    "middleware": "guide.md#middleware-and-hooks",
    "isolate": "isolation.md",
    "cpu_bound": "isolation.md",
    "memory": "isolation.md",
    "batch_size": "batches.md",
    "rate": "limits.md",
    "concurrency": "limits.md",
    "limit": "limits.md",
    "ordered": "limits.md",
    "breaker": "breakers.md",
    "fair_by": "fairness.md",
    "slo": "fairness.md",
    "unique": "uniqueness.md",
    "idempotency_key": "uniqueness.md",
    "tx": "postgresql.md#enqueue-in-your-own-transaction",
    "tags": "jobs.md",
}
_EFFECTIVE = {
    "name": "the function's name",
    "retry": code('Retry(initial="1s", factor=2, max_delay="5m")'),
    "burst": "the number of jobs in the `rate`",
    "per": '`"key"` if there is a `key`, else `"kind"`',
    "weights": "one turn each",
    "idempotency_key": "the job's own id",
}
"""What holds where an option is not given and its field says only None."""
_NONE = "-"
_SETTINGS = {each.field: each.default for each in describe_settings()}
"""Defaults that are settings of the app."""


def _names() -> list[str]:
    of_job = [each.name for each in fields(JobOptions)]
    of_using = [name for name in inspect.signature(Producer.using).parameters if name != "self"]
    return [*of_job, *(name for name in of_using if name not in of_job)]


def _anchor(name: str) -> str:
    return f"option-{name}"


def _default(option: FieldInfo) -> str:
    if option.name in ("timeout", "max_retries", "isolate"):
        link = f"[`{option.name}`](settings.md#setting-{option.name})"
        return f"setting {link}: {_SETTINGS[option.name]}"
    if option.name == "grace":
        return code(f"{CANCEL_GRACE.total_seconds():g}s")
    if option.name in _EFFECTIVE:
        return _EFFECTIVE[option.name]
    default = getattr(JobOptions(), option.name)
    return "none" if default in (None, (), {}) else code(repr(default))


def _pages() -> list[Page]:
    of_job = {each.name: each for each in fields(JobOptions)}
    of_using = inspect.signature(Producer.using).parameters
    docs = argument_docs(Producer.using) | attribute_docs(JobOptions)
    rows = []
    for name in _names():
        if name not in docs:
            continue
        guide = f" [How]({'../' + _GUIDES[name]})." if name in _GUIDES else ""
        rows.append(
            (
                marked(_anchor(name), code(name)),
                _default(of_job[name]) if name in of_job else _NONE,
                "yes" if name in of_using else _NONE,
                docs[name] + guide,
            )
        )
    text = (
        "# Options of `@app.job` and `using`\n\n"
        "`@app.job(...)` sets the options of all jobs of a kind; `handler.using(...)` those of "
        "single jobs, which win over those of the kind. A dash means that there is no such option. "
        "Durations are "
        'written `"30s"`, `"5m"`, `"1h30m"`, as a number of seconds, or as a `timedelta`.\n\n'
    )
    return [
        Page(
            _PATH,
            text
            + table(["option", "default in `@app.job`", "in `using`", "what it does"], rows)
            + _of_schedules(),
        )
    ]


def _of_schedules() -> str:
    docs = attribute_docs(Manner)
    rows = [(code(each.name), _of_manner(each), docs[each.name]) for each in fields(Manner)]
    return (
        "\n## Options of `@app.every` and `@app.cron`\n\n"
        "They take all options of `@app.job`, and these ([Schedules](../schedules.md)):\n\n"
        + table(["option", "default", "what it does"], rows)
    )


def _of_manner(option: FieldInfo) -> str:
    if option.name == "overlap":
        return '`"queue"` with `catch_up="all"`, else `"skip"`'
    return code(repr(option.default))


CHAPTER = Chapter(
    subject="option of @app.job or using",
    title="Options of @app.job and using",
    summary="every option of a handler and of an enqueue, with its default",
    path=_PATH,
    names=_names,
    anchor=_anchor,
    pages=_pages,
    remedy="write a text below its field in JobOptions, or a line under Args of Producer.using",
)
