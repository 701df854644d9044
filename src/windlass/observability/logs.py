"""Owns log lines: how Windlass logs, the fields that a job adds, and the format.

Windlass logs through the standard library's loggers named `windlass...`, and never calls
`structlog.configure`: where it is embedded, that program's logging configuration decides.
Only the command line calls `configure_logging`, which puts one handler on the root logger.
"""

from __future__ import annotations

import io
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

from windlass.core.failures.describe import describe
from windlass.core.values.text import inert
from windlass.observability.console import Console
from windlass.observability.log_context import fields_here, running
from windlass.observability.log_handler import LogHandler
from windlass.observability.log_masking import (
    redact_fields,
    redact_lines,
    redact_traces,
    redaction_in_force,
)
from windlass.settings import LogFormat, LogLevel

Line = dict[str, Any]
"""A log line before it is written: its fields, the event among them."""
_ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None]


class Logger:
    """A logger of named events with fields; `bind` makes one whose lines all carry some fields.

    As with the standard library, arguments after an event fill its `%s`. The names that every line
    has, like `level`, are reserved: a field of that name gets a `_` appended.
    """

    __slots__ = ("_bound", "_logger")

    def __init__(self, logger: logging.Logger, bound: Mapping[str, object]) -> None:
        self._logger = logger
        self._bound = bound

    def bind(self, **fields: object) -> Self:
        """Return a logger whose lines carry these fields in addition."""
        return type(self)(self._logger, {**self._bound, **fields})

    def debug(self, event: str, /, *args: object, **fields: object) -> None:
        """Log a detail for debugging."""
        if self._logger.isEnabledFor(logging.DEBUG):
            self._emit(logging.DEBUG, event, args, fields)

    def info(self, event: str, /, *args: object, **fields: object) -> None:
        """Log an ordinary event."""
        if self._logger.isEnabledFor(logging.INFO):
            self._emit(logging.INFO, event, args, fields)

    def warning(self, event: str, /, *args: object, **fields: object) -> None:
        """Log a problem that was handled."""
        if self._logger.isEnabledFor(logging.WARNING):
            self._emit(logging.WARNING, event, args, fields)

    def error(self, event: str, /, *args: object, **fields: object) -> None:
        """Log a problem that needs attention."""
        if self._logger.isEnabledFor(logging.ERROR):
            self._emit(logging.ERROR, event, args, fields)

    def exception(self, event: str, /, *args: object, **fields: object) -> None:
        """Log an error with the traceback of the exception that is being handled."""
        if self._logger.isEnabledFor(logging.ERROR):
            self._emit(logging.ERROR, event, args, {"exc_info": True, **fields})

    def critical(self, event: str, /, *args: object, **fields: object) -> None:
        """Log a problem that stops the worker."""
        if self._logger.isEnabledFor(logging.CRITICAL):
            self._emit(logging.CRITICAL, event, args, fields)

    def _emit(
        self, level: int, event: str, args: tuple[object, ...], fields: dict[str, Any]
    ) -> None:
        own = _apart({**self._bound, **fields}, _FIRST)
        said = redact_fields({**own, "event": _filled(event, args) if args else event})
        line = _Event(self._in_job(said))
        exc_info = _resolved(line.pop("exc_info", None))
        if exc_info is not None and running.get() is not None:
            # The error of a run may contain its secrets, and a program's own logging masks nothing.
            line["exception"] = describe(exc_info[1], redaction_in_force()).traceback
            exc_info = None
        if exc_info is not None:
            line["exc_info"] = exc_info
        # By these two, structlog's own formatter knows a message that is a dictionary.
        extra = {"_logger": self._logger, "_name": logging.getLevelName(level).lower()}
        self._logger.log(level, line, exc_info=exc_info, extra=extra, stacklevel=3)

    def _in_job(self, said: dict[str, Any]) -> dict[str, Any]:
        """Add the fields of the current run; a line of Windlass may be about another job."""
        return {**fields_here(), **said}


class UserLogger(Logger):
    """The logger that handlers use: its lines are about the current run, and no other."""

    __slots__ = ()

    def _in_job(self, said: dict[str, Any]) -> dict[str, Any]:
        job = fields_here()
        return {**job, **_apart(said, job)}


def get_logger(name: str) -> Logger:
    """Return a logger with a name below `windlass`."""
    return Logger(logging.getLogger(name), {})


def configure_logging(
    level: LogLevel,
    format: LogFormat,  # noqa: A002  (The setting has this name.)
    stream: TextIO | None = None,
    *,
    redact: Iterable[str] = (),
) -> logging.Handler:
    """Send every log line of this process to one stream; a second call replaces the first.

    Fields whose names are sensitive, like `password`, or match one of `redact`, are masked.
    """
    redact_lines(redact)
    stream = stream or sys.stderr or io.StringIO()  # Where stderr is closed, it is None.
    pretty = stream.isatty() if format == "auto" else format == "console"
    render = Console(stream, shown, colors=has_colors(stream)) if pretty else _json
    formatter = _Formatter(render)
    handler = LogHandler(stream, format, formatter, as_json=not pretty)
    root = logging.getLogger()
    for old in [handler for handler in root.handlers if isinstance(handler, LogHandler)]:
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
    ours = [each.chosen for each in root.handlers if isinstance(each, LogHandler)]
    return (heard or levels[-1:])[0], ours[0] if ours else "auto"


def has_colors(stream: TextIO) -> bool:
    """Return whether a stream shows colours, and its user wants them."""
    return stream.isatty() and not os.environ.get("NO_COLOR")


def is_for_people() -> bool:
    """Return whether the log lines of this process are written for people, not as JSON."""
    lines = [each for each in logging.getLogger().handlers if isinstance(each, LogHandler)]
    return any(not each.as_json for each in lines)


class _Event(dict[str, object]):
    """A log record's message: fields for structlog, one readable line for other formatters."""

    def __str__(self) -> str:
        fields = [f"{key}={shown(value)}" for key, value in self.items() if key not in _NOT_SHOWN]
        return " ".join([inert(str(self["event"])), *fields])


_NOT_SHOWN = ("event", "exc_info")


class _Formatter(logging.Formatter):
    """Turns any record into one line, whatever is in it."""

    def __init__(self, render: Callable[[Line], str]) -> None:
        super().__init__()
        self._render = render

    def format(self, record: logging.LogRecord) -> str:
        try:
            return self._render(_line(record))
        except Exception as error:  # noqa: BLE001  A log line never costs the job that writes it.
            return self._render(_line(_unformattable(record, error)))


def _line(record: logging.LogRecord) -> Line:
    """Return the line of a record; no field can replace those that every line has."""
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
    """Return the fields of a record and of the current run.

    A line of Windlass may be about another job. Fields of the user's structlog or of an `extra`
    never replace those of the run.
    """
    job = fields_here()
    has = record.__dict__
    if "_logger" in has and "_name" in has and isinstance(record.msg, dict):
        said = record.msg if isinstance(record.msg, _Event) else _apart(record.msg, job)
        return {**job, **said}
    fields = _apart({key: has[key] for key in has if key not in _STANDARD}, {**_FIRST, **job})
    fields["event"] = record.getMessage()
    fields |= {key: has[key] for key in ("exc_info", "stack_info") if has[key]}
    return {**redact_fields(fields), **job}


def _apart(fields: Mapping[str, Any], taken: Mapping[str, object]) -> dict[str, Any]:
    """Return the fields of a user, with `_` appended to names that are taken."""
    if taken.keys().isdisjoint(fields):
        return dict(fields)
    return {
        f"{name}_" if name in taken else name: each
        for name, each in fields.items()
        if name not in taken or not _is_same(each, taken[name])
    }


def _is_same(one: object, other: object) -> bool:
    return type(_plain(one)) is type(_plain(other)) and bool(_plain(one) == _plain(other))


def _filled(event: str, args: tuple[Any, ...]) -> str:
    """Format an event with its arguments as the standard library does; never raise."""
    try:
        by_name = len(args) == 1 and isinstance(args[0], Mapping) and args[0]
        return event % (args[0] if by_name else args)
    except Exception as error:  # noqa: BLE001  A log line never costs the job that writes it.
        return f"{_repr(event)} {_repr(args)} cannot be logged: {_repr(error)}"


_FIRST: dict[str, object] = {"timestamp": None, "level": None, "event": None, "logger": None}
"""The fields of every line."""
_STANDARD = {*logging.makeLogRecord({}).__dict__, "message", "asctime"}


def _resolved(error: object) -> _ExcInfo | None:
    """Return `exc_info` as a tuple, or None, from any value that logging accepts for it."""
    match error:
        case (_, BaseException() as raised, (TracebackType() | None) as where):
            return type(raised), raised, where
        case BaseException():
            return type(error), error, error.__traceback__
        case _:
            found = sys.exc_info() if error else (None, None, None)
            return None if found[0] is None else found


def _json(line: Line) -> str:
    """Return one JSON object in ASCII, so that no control character reaches a terminal."""
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


def shown(value: object) -> str:
    """Return a value as one word, or quoted, so that it cannot look like more fields."""
    plain = _plain(value)
    text = inert(plain if isinstance(plain, str) else _repr(plain))
    if text and not set(text) & set(" ='\""):
        return text
    return '"' + text.replace('"', '\\"') + '"'


def _plain(value: object) -> object:
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
    message = f"{_repr(record.msg)} {_repr(record.args)} cannot be logged: {_repr(error)}"
    spare = {"name": record.name, "created": record.created, "levelname": record.levelname}
    return logging.makeLogRecord({**spare, "levelno": record.levelno, "msg": message})
