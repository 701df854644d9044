"""Owns the settings: what can be set, by which names and within which bounds, and which value wins.

Flags win over the environment, that over `.env`, that over `windlass.toml`, that over the defaults.
Within one of these, `WINDLASS_...` wins over the other names. Only values that win are read.
Nothing is kept between calls; `${NAME}` inside `.env` is python-dotenv's to expand.
"""

from __future__ import annotations

import os
import re
import reprlib
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

from dotenv import dotenv_values

from windlass.core.bounds import REMEDY, Bounds
from windlass.core.durations import duration, human
from windlass.core.errors import ConfigError

LogLevel = Literal["debug", "info", "warning", "error", "critical"]
LogFormat = Literal["auto", "console", "json"]


def usable_cpus() -> int:
    """Count the CPUs that this process may use, which may be fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Served(NamedTuple):
    """A queue that a worker serves, and how many of its slots that may have; None: all of them."""

    queue: str
    slots: int | None = None

    def __str__(self) -> str:
        return self.queue if self.slots is None else f"{self.queue}={self.slots}"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What can be set. `load_settings` checks the bounds; this constructor trusts its caller."""

    url: str = field(default="sqlite:///windlass.db", repr=False)
    schema: str = "windlass"
    listen_url: str = field(default="", repr=False)
    pool_size: int = 10
    pool_overflow: int = 20
    pool_recycle: timedelta = timedelta(hours=1)
    threads: int = field(default_factory=usable_cpus)
    children: int = field(default_factory=usable_cpus)
    isolate: bool = False
    slots: Bounds = field(default=Bounds.of(100))
    processes: Bounds = field(default=Bounds.of(1))
    batch_size: int = 100
    poll_interval: timedelta = timedelta(seconds=1)
    queue_size: int = 1000
    max_retries: int = 3
    max_crashes: int = 3
    timeout: timedelta = timedelta(seconds=300)
    lease: timedelta = timedelta(seconds=30)
    shutdown_timeout: timedelta = timedelta(seconds=30)
    retention: timedelta | None = timedelta(days=7)
    dead_retention: timedelta | None = None
    max_payload: int = 262_144
    enqueue_timeout: timedelta = timedelta(seconds=10)
    log_level: LogLevel = "info"
    log_format: LogFormat = "auto"
    queues: tuple[Served, ...] = ()
    exclude: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A value that won, where it came from, and how to show it without giving a password away."""

    value: object = field(repr=False)
    source: str
    shown: str


@dataclass(frozen=True, kw_only=True)
class Resolved:
    """The settings, where each came from, and what is set but means nothing to this release."""

    settings: Settings
    sources: Mapping[str, Setting]
    warnings: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class SettingHelp:
    """What a person wants to know about a setting."""

    field: str
    variable: str
    other_names: tuple[str, ...]
    default: str
    accepts: str
    doc: str


def load_settings(
    flags: Mapping[str, object] | None = None,
    *,
    code: Mapping[str, object] | None = None,
    environ: Mapping[str, str],
    directory: Path,
) -> Resolved:
    """Find the value of every setting; a flag that is None or an empty list was not given.

    `code` is what a program gave as arguments; only flags win over that.

    Raises:
        ConfigError: a value is wrong, a file cannot be read, or two names contradict each other.
    """
    dotenv = read_dotenv(directory / ".env")
    file, toml = _read_toml(
        directory, environ.get("WINDLASS_CONFIG", dotenv.get("WINDLASS_CONFIG"))
    )
    given, coded = _given(flags), _given(code)
    _refuse_unknown(given, "a flag")
    _refuse_unknown(coded, "a setting")
    _refuse_unknown(toml, f"a key of {file}")
    layers = (
        _Layer(given, lambda name: "--" + name.replace("_", "-"), by_field=True),
        _Layer(coded, lambda name: f"Windlass({name}=...)", by_field=True),
        _Layer(environ, lambda name: name),
        _Layer(dotenv, lambda name: f".env: {name}"),
        _Layer(toml, lambda name: f"{file}: {name}", by_field=True),
    )
    sources = {name: _resolve(name, rule, layers) for name, rule in _RULES.items()}
    values = cast("dict[str, Any]", {name: found.value for name, found in sources.items()})
    variables = [(layer.label(name), name) for layer in layers[2:4] for name in layer.values]
    return Resolved(
        settings=Settings(**values),
        sources=sources,
        warnings=tuple(_unknown_variables(variables)),
        unused=tuple(label for label, name in variables if name in _UNUSED),
    )


def describe_settings() -> Iterator[SettingHelp]:
    """Tell about every setting, for the docs and `--help`."""
    for name, rule in _RULES.items():
        yield SettingHelp(
            field=name,
            variable=_variable(name),
            other_names=rule.names,
            default=rule.default or rule.show(getattr(Settings(), name)),
            accepts=rule.accepts("seconds"),
            doc=rule.doc,
        )


def redact_url(url: str) -> str:
    """Hide the passwords in a URL: `user:***@host`, and query parameters like `sslpassword`.

    A password with an unescaped `/`, `?` or `@` in it is hidden too, at worst with the host.
    """
    query = _QUERY.search(url)
    cut = query.start() if query and "@" in url[: query.start()] else len(url)
    return _SECRET.sub(r"\1***", _USERINFO.sub(r"\1:***@", url[:cut]) + url[cut:])


_QUERY = re.compile(r"\?[\w.-]+=")
_USERINFO = re.compile(r"(?<=://)([^:@/]*):.*@", re.DOTALL)
_SECRET = re.compile(r"(\w*(?:password|passwd|pwd|secret|token)=)[^&]*", re.IGNORECASE)

_Unit = Literal["seconds", "milliseconds"]
_UNUSED = ("REDIS_URL", "METRICS_PORT")
_OTHERS = ("WINDLASS_APP", "WINDLASS_CONFIG", "WINDLASS_DEBUG")
"""Variables that are no settings: where those are, which app is meant, and how to fail."""
_QUEUE_SLOTS = 100_000
_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = 80


@dataclass(frozen=True)
class _Layer:
    """One place where values are given: by field names, or by the names of variables."""

    values: Mapping[str, object]
    label: Callable[[str], str]
    by_field: bool = False

    def names(self, name: str, rule: _Rule) -> list[str]:
        """Tell by which names the setting is given here."""
        own = name if self.by_field else _variable(name)
        others = () if self.by_field else rule.names
        return [own] if own in self.values else [each for each in others if each in self.values]

    def read(self, name: str, rule: _Rule) -> object:
        """Read the value that is given here by a name."""
        unit: _Unit = rule.unit if name in rule.names else "seconds"
        try:
            return rule.read(self.values[name], unit)
        except (TypeError, ValueError):
            # Without its cause, which would show the value, and that may hold a password.
            told = f"{self.label(name)} (not shown)" if rule.secret else self.tell(name)
            raise ConfigError(f"{told} is wrong: write {rule.accepts(unit)}") from None

    def tell(self, name: str) -> str:
        return f"{self.label(name)} = {_REPR.repr(self.values[name])}"


def _resolve(name: str, rule: _Rule, layers: tuple[_Layer, ...]) -> Setting:
    for layer in layers:
        names = layer.names(name, rule)
        values = [layer.read(given, rule) for given in names]
        if any(value != values[0] for value in values):
            told = " and ".join(layer.tell(given) for given in names)
            remedy = f"keep one of them, or set {_variable(name)}, which wins"
            raise ConfigError(f"{told} give {name} different values: {remedy}")
        if values:
            source = layer.label(names[0])
            return Setting(value=values[0], source=source, shown=rule.show(values[0]))
    default = getattr(Settings(), name)
    return Setting(value=default, source="default", shown=rule.show(default))


def _given(values: Mapping[str, object] | None) -> dict[str, object]:
    return {name: raw for name, raw in (values or {}).items() if raw not in (None, [], (), {})}


def _refuse_unknown(values: Mapping[str, object], what: str) -> None:
    for name in values:
        if name not in _RULES:
            near = _nearest(name)
            hint = f"did you mean {near!r}?" if near else f"there are: {', '.join(_RULES)}"
            raise ConfigError(f"{_REPR.repr(name)} is not {what}; {hint}")


def _unknown_variables(variables: list[tuple[str, str]]) -> Iterator[str]:
    known = {*_OTHERS, *map(_variable, _RULES)}
    for label, name in variables:
        if name.startswith("WINDLASS_") and name not in known:
            near = _nearest(name.removeprefix("WINDLASS_"))
            hint = f"; did you mean {_variable(near)}?" if near else ""
            yield f"{label} is set, and there is no such setting{hint}"


def _nearest(name: str) -> str | None:
    """Find the field that somebody may have meant, by its own name or another."""
    meant = {other.lower(): known for known, rule in _RULES.items() for other in rule.names}
    meant |= {known: known for known in _RULES}
    near = get_close_matches(name.lower().replace("-", "_"), meant, n=1)
    return meant[near[0]] if near else None


def _variable(name: str) -> str:
    return f"WINDLASS_{name.upper()}"


def read_dotenv(path: Path) -> dict[str, str]:
    """Read a `.env` file, if there is one.

    Raises:
        ConfigError: it cannot be read.
    """
    try:
        return {name: raw for name, raw in dotenv_values(path).items() if raw is not None}
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error


def _read_toml(directory: Path, chosen: str | None) -> tuple[str, dict[str, object]]:
    name = "windlass.toml" if chosen is None else chosen
    try:
        return name, tomllib.loads((directory / name).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        if chosen is None and isinstance(error, FileNotFoundError):
            return name, {}
        told = name if chosen is None else f"WINDLASS_CONFIG = {chosen!r}"
        raise ConfigError(f"{told} cannot be read: {error}") from error


def _whole(raw: object, _unit: _Unit) -> int:
    if isinstance(raw, int) and not isinstance(raw, bool):
        return raw
    if isinstance(raw, str) and re.fullmatch(r"\s*[+-]?\d+\s*", raw, re.ASCII):
        return int(raw)
    raise ValueError("not a whole number")


def _bounds(raw: object, _unit: _Unit) -> Bounds:
    return Bounds.read(raw)


def _span(raw: object, unit: _Unit) -> timedelta:
    if isinstance(raw, str) and re.fullmatch(r"\s*\d+(\.\d+)?\s*", raw, re.ASCII):
        raw = float(raw)
    if isinstance(raw, int | float) and not isinstance(raw, bool):
        return duration(raw if unit == "seconds" else raw / 1000)
    if isinstance(raw, str | timedelta):
        return duration(raw)
    raise ValueError("not a time")


def _span_or_never(raw: object, unit: _Unit) -> timedelta | None:
    if isinstance(raw, str) and raw.strip().lower() == "never":
        return None
    return _span(raw, unit)


def _on_or_off(raw: object, _unit: _Unit) -> bool:
    if isinstance(raw, bool):
        return raw
    text = raw.strip().lower() if isinstance(raw, str) else ""
    if text in ("true", "yes", "on", "1"):
        return True
    if text in ("false", "no", "off", "0"):
        return False
    raise ValueError("neither on nor off")


def _url(raw: object, _unit: _Unit) -> str:
    if isinstance(raw, str) and re.match(r"\s*[a-z][a-z0-9+.-]*://", raw):
        return raw.strip()  # A secret that was read from a file often ends in a line break.
    raise ValueError("not a URL")


def _names(raw: object, _unit: _Unit) -> tuple[str, ...]:
    """Read a list, with commas or of TOML, in its order and without repetitions."""
    parts = raw.split(",") if isinstance(raw, str) else raw
    if not isinstance(parts, list | tuple) or not all(isinstance(part, str) for part in parts):
        raise ValueError("not a list of names")
    return tuple(dict.fromkeys(part.strip() for part in parts if part.strip()))


def _queues(raw: object, unit: _Unit) -> tuple[Served, ...]:
    """Read queues like `mail=10,default`, or a table of them, in their order."""
    if isinstance(raw, Mapping):
        queues = [_served(queue, slots) for queue, slots in raw.items()]
    else:
        queues = [_served(*_pair(each)) for each in _names(raw, unit)]
    if len({each.queue for each in queues}) < len(set(queues)):
        raise ValueError("a queue has two numbers")
    return tuple(dict.fromkeys(queues))


def _pair(text: str) -> tuple[str, str | None]:
    queue, given, slots = text.rpartition("=")
    return (queue, slots) if given else (text, None)


def _served(queue: object, slots: object) -> Served:
    if not isinstance(queue, str) or not queue.strip():
        raise ValueError("not a name")
    count = None if slots is None else _whole(slots, "seconds")
    if count is not None and not 1 <= count <= _QUEUE_SLOTS:
        raise ValueError("out of bounds")
    return Served(queue.strip(), count)


def _one_of(*choices: str, **aliases: str) -> _Reader:
    def read(raw: object, _unit: _Unit) -> str:
        text = raw.strip().lower() if isinstance(raw, str) else ""
        text = aliases.get(text, text)
        if text not in choices:
            raise ValueError("not one of the choices")
        return text

    return _Reader(f"one of {', '.join(choices)}", read)


class _Reader(NamedTuple):
    """A way to read what people write, and the word for it."""

    noun: str
    read: Callable[[object, _Unit], object]


def _name(raw: object, _unit: _Unit) -> str:
    if isinstance(raw, str) and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,39}", raw.strip(), re.ASCII):
        return raw.strip()
    raise ValueError("not a name")


def _listen(raw: object, unit: _Unit) -> str:
    return raw if raw in ("off", "") else _url(raw, unit)


_NAME = _Reader("a name of letters, digits and underscores, at most 40", _name)
_LISTEN = _Reader("a URL like 'postgresql://host/database', or 'off'", _listen)
_URL = _Reader("a URL like 'sqlite:///windlass.db'", _url)
_NUMBER = _Reader("a whole number", _whole)
_BOUNDS = _Reader(REMEDY, _bounds)
_TIME = _Reader("a time like '30s', a bare number being in {unit}", _span)
_AGE = _Reader("a time like '7d', a bare number being in {unit}, or 'never'", _span_or_never)
_LIST = _Reader("names with commas between them", _names)
_QUEUES = _Reader(
    "names with commas between them, each with its slots if those are fewer: 'mail=10,default'",
    _queues,
)
_LEVEL = _one_of("debug", "info", "warning", "error", "critical", warn="warning", fatal="critical")
_SWITCH = _Reader("true or false", _on_or_off)
_FORMAT = _one_of("auto", "console", "json")


@dataclass(frozen=True)
class _Rule:
    """What makes a setting's value right, how it is shown, and what it is for."""

    reader: _Reader
    doc: str
    bounds: tuple[Any, Any] = (None, None)
    names: tuple[str, ...] = ()
    unit: _Unit = "seconds"  # of a bare number under one of those names
    default: str = ""
    empty: str = "never"
    secret: bool = False

    def read(self, raw: object, unit: _Unit) -> object:
        """Read a value and check its bounds."""
        value: Any = self.reader.read(raw, unit)
        low, high = self.bounds
        least, most = (value.least, value.most) if isinstance(value, Bounds) else (value, value)
        if (low is not None and least < low) or (high is not None and most > high):
            raise ValueError("out of bounds")
        return value

    def accepts(self, unit: _Unit) -> str:
        """Say what would be right."""
        limits = zip(("at least", "at most"), self.bounds, strict=True)
        told = [f"{word} {self.show(limit)}" for word, limit in limits if limit is not None]
        return ", ".join([self.reader.noun.format(unit=unit), *told])

    def show(self, value: object) -> str:
        """Write a value as people do."""
        if value in (None, (), ""):
            return self.empty
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, timedelta):
            return human(value)
        if isinstance(value, tuple):
            return ",".join(map(str, value))
        return redact_url(str(value)) if self.secret else str(value)


_SECOND = timedelta(seconds=1)

_RULES: dict[str, _Rule] = {
    "url": _Rule(_URL, "Where the jobs are kept.", secret=True),
    "schema": _Rule(_NAME, "The schema of a PostgreSQL database that holds the jobs."),
    "listen_url": _Rule(
        _LISTEN,
        "Where a PostgreSQL server is listened to, if the URL leads to a pooler; off: poll only.",
        secret=True,
        empty="the URL",
    ),
    "pool_size": _Rule(
        _NUMBER, "Connections to PostgreSQL that a pool keeps; see docs/postgresql.md.", (1, 10_000)
    ),
    "pool_overflow": _Rule(
        _NUMBER, "Connections that a pool opens beyond those under load.", (0, 10_000)
    ),
    "pool_recycle": _Rule(
        _TIME, "After how long a connection to PostgreSQL is replaced.", (_SECOND, None)
    ),
    "threads": _Rule(
        _NUMBER,
        "Threads of a worker process, for handlers that are not async.",
        (1, 10_000),
        ("WORKER_COUNT",),
        default="the number of CPUs",
    ),
    "children": _Rule(
        _NUMBER,
        "Child processes of a worker process, for isolated handlers.",
        (1, 10_000),
        default="the number of CPUs",
    ),
    "isolate": _Rule(
        _SWITCH, "Whether handlers that are not async run in child processes by default."
    ),
    "slots": _Rule(
        _BOUNDS,
        "Jobs that a worker process runs at once; 5..100: as many as the load wants.",
        (1, 100_000),
        ("WORKER_CONCURRENCY",),
    ),
    "processes": _Rule(_BOUNDS, "Worker processes; 1..8: as many as the load wants.", (1, 1_000)),
    "batch_size": _Rule(
        _NUMBER, "Jobs that a worker claims at once, at most.", (1, 10_000), ("JOB_BATCH_SIZE",)
    ),
    "poll_interval": _Rule(
        _TIME,
        "How often an idle worker looks for jobs that nothing woke it for.",
        (_SECOND / 100, 300 * _SECOND),
        ("JOB_POLL_INTERVAL",),
        unit="milliseconds",
    ),
    "queue_size": _Rule(
        _NUMBER, "Jobs that may wait in the memory store.", (1, 10**9), ("QUEUE_SIZE",)
    ),
    "max_retries": _Rule(
        _NUMBER,
        "How often a job is tried again before it is dead, unless its kind says otherwise.",
        (0, 10**6),
        ("MAX_RETRIES", "JOB_MAX_RETRIES"),
    ),
    "max_crashes": _Rule(
        _NUMBER,
        "How many processes a job may kill, each while it runs alone, before it is dead.",
        (1, 10**6),
    ),
    "timeout": _Rule(
        _TIME, "How long a job may run, unless its kind says otherwise.", (_SECOND / 1000, None)
    ),
    "lease": _Rule(
        _TIME,
        "How long after a worker's last heartbeat its jobs are given to others.",
        (_SECOND, 3600 * _SECOND),
    ),
    "shutdown_timeout": _Rule(
        _TIME,
        "How long a worker that was told to stop waits for the jobs it runs.",
        names=("SHUTDOWN_TIMEOUT",),
    ),
    "retention": _Rule(_AGE, "How long completed and cancelled jobs are kept."),
    "dead_retention": _Rule(_AGE, "How long dead jobs are kept."),
    "max_payload": _Rule(_NUMBER, "Bytes that a payload may have.", (1, 2**29)),
    "enqueue_timeout": _Rule(_TIME, "How long an enqueue may take.", (_SECOND / 1000, None)),
    "log_level": _Rule(_LEVEL, "The least level that is logged.", names=("LOG_LEVEL",)),
    "log_format": _Rule(_FORMAT, "How log lines look; auto: for people on a terminal, else JSON."),
    "queues": _Rule(
        _QUEUES,
        "The queues that a worker serves; mail=10: with at most so many of its slots.",
        empty="all",
    ),
    "exclude": _Rule(_LIST, "The queues that a worker does not serve.", empty="none"),
    "imports": _Rule(_LIST, "Modules with handlers, which a worker loads.", empty="none"),
}
