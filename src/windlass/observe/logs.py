"""Owns log lines: how Windlass writes them, what a job adds to them, and what they look like.

Windlass logs through the standard library's loggers named `windlass...`, and never calls
`structlog.configure`: where it is embedded, that program's logging decides what becomes of a line.
Only the command line calls `configure_logging`, which puts one handler on the root logger.

structlog draws the lines for people, and is loaded for nothing else: it loads rich and pygments,
for which every worker and every program that enqueues would wait.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import PurePath
from types import TracebackType
from typing import Any, Self, TextIO
from uuid import UUID

from windlass.core.text import inert, inert_lines
from windlass.observe.discretion import redact_fields, redact_lines, redact_traces
from windlass.observe.lines import Lines
from windlass.observe.running import fields_here
from windlass.settings import LogFormat, LogLevel

Line = dict[str, Any]
"""A log line before it is written: its fields, the event among them."""
_ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None]


class Logger:
    """A logger of named events with fields; `bind` makes one whose lines all carry some fields."""

    __slots__ = ("_bound", "_logger")

    def __init__(self, logger: logging.Logger, bound: Mapping[str, object]) -> None:
        self._logger = logger
        self._bound = bound

    def bind(self, **fields: object) -> Self:
        """Make a logger whose lines carry these fields, besides those that the lines of this do."""
        return type(self)(self._logger, {**self._bound, **fields})

    def debug(self, event: str, /, **fields: object) -> None:
        """Log what only somebody who looks for a fault wants to know."""
        if self._logger.isEnabledFor(logging.DEBUG):
            self._emit(logging.DEBUG, event, fields)

    def info(self, event: str, /, **fields: object) -> None:
        """Log what happened in the ordinary course of things."""
        if self._logger.isEnabledFor(logging.INFO):
            self._emit(logging.INFO, event, fields)

    def warning(self, event: str, /, **fields: object) -> None:
        """Log what went wrong and was dealt with."""
        if self._logger.isEnabledFor(logging.WARNING):
            self._emit(logging.WARNING, event, fields)

    def error(self, event: str, /, **fields: object) -> None:
        """Log what somebody has to look at."""
        if self._logger.isEnabledFor(logging.ERROR):
            self._emit(logging.ERROR, event, fields)

    def exception(self, event: str, /, **fields: object) -> None:
        """Log an error with the traceback of the exception that is being handled."""
        if self._logger.isEnabledFor(logging.ERROR):
            self._emit(logging.ERROR, event, {"exc_info": True, **fields})

    def critical(self, event: str, /, **fields: object) -> None:
        """Log what stops the worker."""
        if self._logger.isEnabledFor(logging.CRITICAL):
            self._emit(logging.CRITICAL, event, fields)

    def _emit(self, level: int, event: str, fields: dict[str, Any]) -> None:
        said = redact_fields({**self._bound, **fields, "event": event})
        line = _Event({**fields_here(), **said})
        if (exc_info := _resolved(line.pop("exc_info", None))) is not None:
            line["exc_info"] = exc_info
        # By these two, structlog's own formatter knows a message that is a dictionary.
        extra = {"_logger": self._logger, "_name": logging.getLevelName(level).lower()}
        self._logger.log(level, line, exc_info=exc_info, extra=extra, stacklevel=3)


def get_logger(name: str) -> Logger:
    """Make a logger; `name` is the module's, so that it stands below `windlass`."""
    return Logger(logging.getLogger(name), {})


def configure_logging(
    level: LogLevel,
    format: LogFormat,  # noqa: A002  (It is what the setting is called.)
    stream: TextIO | None = None,
    *,
    redact: Iterable[str] = (),
) -> logging.Handler:
    """Send every log line of this process to one stream; called again, it replaces what it did.

    Fields are masked whose names are sensitive, like `password`, or match one of `redact`.
    """
    redact_lines(redact)
    stream = sys.stderr if stream is None else stream
    pretty = stream.isatty() if format == "auto" else format == "console"
    colors = pretty and stream.isatty() and not os.environ.get("NO_COLOR")
    formatter = _Formatter(_console(colors=colors) if pretty else _json)
    handler = Lines(stream, format, formatter, as_json=not pretty)
    root = logging.getLogger()
    for old in [each for each in root.handlers if isinstance(each, Lines)]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())
    return handler


def logging_in_force() -> tuple[LogLevel, LogFormat] | None:
    """Return the level and the format of this process's log lines, or None if it writes none."""
    root = logging.getLogger()
    if not root.handlers:
        return None
    levels: tuple[LogLevel, ...] = ("debug", "info", "warning", "error", "critical")
    numbers = logging.getLevelNamesMapping()
    heard = [each for each in levels if numbers[each.upper()] >= root.level]
    ours = [each.chosen for each in root.handlers if isinstance(each, Lines)]
    return (heard or levels[-1:])[0], ours[0] if ours else "auto"


class _Event(dict[str, object]):
    """A line of ours as a record's message: fields for structlog, one readable line for others."""

    def __str__(self) -> str:
        fields = [f"{key}={shown(value)}" for key, value in self.items() if key not in _UNTOLD]
        return " ".join([inert(str(self["event"])), *fields])


_UNTOLD = ("event", "exc_info")


class _Formatter(logging.Formatter):
    """Turns any record into one line, whatever is in it."""

    def __init__(self, render: Callable[[Line], str]) -> None:
        super().__init__()
        self._render = render

    def format(self, record: logging.LogRecord) -> str:
        """Write a record; one that cannot be written is told about as far as it can be."""
        try:
            return self._render(_told(record))
        except Exception as error:  # noqa: BLE001  A log line never costs the job that writes it.
            return self._render(_told(_unformattable(record, error)))


def _told(record: logging.LogRecord) -> Line:
    """Return what a record says, with first what every line has: no field can claim these names."""
    fields = _fields(record)
    if (exc_info := _resolved(fields.pop("exc_info", None))) is not None:
        fields["exception"] = "".join(traceback.format_exception(*exc_info)).removesuffix("\n")
    created = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds")
    first = {
        "timestamp": created.replace("+00:00", "Z"),
        "level": record.levelname.lower(),
        "event": str(fields["event"]),
        "logger": record.name,
    }
    return redact_traces({**first, **fields, **first})


def _fields(record: logging.LogRecord) -> Line:
    """Return the fields of a record, and what the running job adds.

    A line of ours, or of the user's structlog, may say otherwise, being about another job. What an
    `extra` says instead is not believed, nor may it replace what the line is.
    """
    job = fields_here()
    has = record.__dict__
    if "_logger" in has and "_name" in has and isinstance(record.msg, dict):
        return {**job, **record.msg}
    fields = {key: has[key] for key in has if key not in _STANDARD}
    fields["event"] = record.getMessage()
    fields |= {key: has[key] for key in ("exc_info", "stack_info") if has[key]}
    return {**redact_fields(fields), **job}


_STANDARD = {*logging.makeLogRecord({}).__dict__, "message", "asctime"}


def _resolved(error: object) -> _ExcInfo | None:
    """Return what logging takes for `exc_info`, of whatever stands for an exception or for none."""
    match error:
        case (_, BaseException() as raised, (TracebackType() | None) as where):
            return type(raised), raised, where
        case BaseException():
            return type(error), error, error.__traceback__
        case _:
            found = sys.exc_info() if error else (None, None, None)
            return None if found[0] is None else found


def _json(line: Line) -> str:
    """Write one JSON object in ASCII, in which no character can do harm."""
    try:
        return _ENCODER.encode(line)
    except Exception:  # noqa: BLE001  Circular, odd keys, NaN: such values are written by repr.
        return _ENCODER.encode({_repr(key): _encoded(value) for key, value in line.items()})


def _encoded(value: object) -> object:
    try:
        return json.loads(_ENCODER.encode(value))
    except Exception:  # noqa: BLE001  See _json.
        return _repr(value)


def _encodable(value: object) -> object:
    plain = _plain(value)
    return _repr(value) if plain is value else plain


_ENCODER = json.JSONEncoder(default=_encodable, allow_nan=False)


def _console(*, colors: bool) -> Callable[[Line], str]:
    from structlog.dev import ConsoleRenderer, plain_traceback

    render = ConsoleRenderer(colors=colors, sort_keys=False, exception_formatter=plain_traceback)
    return lambda line: str(render(None, "", _made_inert(line)))


def _made_inert(line: Line) -> Line:
    """Escape whatever could fake a line, in names and values; tracebacks are indented as well."""
    return {inert(str(key)): _inert_field(key, value) for key, value in line.items()}


def _inert_field(key: str, value: object) -> object:
    if key in ("timestamp", "level", "event", "logger"):
        return inert(str(value))
    if key in ("exception", "stack"):
        return "    " + inert_lines(str(value)).replace("\n", "\n    ")
    return _Shown(shown(value))


class _Shown(str):
    """Text that ConsoleRenderer takes as it stands."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def shown(value: object) -> str:
    """Write a value in one word, or in quotes, so that it cannot pass for more fields."""
    plain = _plain(value)
    text = inert(plain if isinstance(plain, str) else _repr(plain))
    if text and not set(text) & set(" ='\""):
        return text
    return '"' + text.replace('"', '\\"') + '"'


def _plain(value: object) -> object:
    """Turn the types that log fields often have into what JSON has."""
    match value:
        case datetime():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case UUID() | PurePath():
            return str(value)
        case _:
            return value


def _repr(value: object) -> str:
    try:
        return value if isinstance(value, str) else repr(value)
    except Exception:  # noqa: BLE001  Anything may stand in a user's __repr__.
        return f"<unprintable {type(value).__name__}>"


def _unformattable(record: logging.LogRecord, error: Exception) -> logging.LogRecord:
    """Make a record that tells what can be told about one that cannot be formatted."""
    told = f"{_repr(record.msg)} {_repr(record.args)} cannot be logged: {_repr(error)}"
    spare = {"name": record.name, "created": record.created, "levelname": record.levelname}
    return logging.makeLogRecord({**spare, "levelno": record.levelno, "msg": told})
