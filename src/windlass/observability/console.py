"""Owns the console format of log lines: important fields first, tracebacks below.

JSON has every field, with whole ids. Here a line about a job has its time, level and event, then
the job's kind, the end of its id, its duration and the other fields. A line that is too long is cut
at the width of the terminal, except warnings, errors and the user's own lines.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TextIO
from uuid import UUID

from windlass.core.values.durations import brief
from windlass.core.values.text import inert, inert_lines

_FIRST = ("timestamp", "level", "event", "logger")
_BLOCKS = ("traceback", "exception", "stack", "stack_info")
_LEVELS = {
    "debug": ("debug", "2"),
    "info": ("info", "32"),
    "warning": ("warn", "33"),
    "error": ("error", "1;31"),
    "critical": ("crit", "1;97;41"),
}
_MINOR = ("debug", "info")
_OF_JOB = ("kind", "job_id", "job_ids", "worker_id", "queue", "attempt", "flow")
_OF_RUN = ("duration", "reason", "next", "error", "failures", "next_at", "error_class")
"""Fields of lines about jobs that have a place of their own, or are in JSON only."""
_EVENT_WIDTH = 11
_ID_LENGTH = 8
_ERROR_LENGTH = 200
_OURS, _CONTEXT, _RUN = "windlass.", "windlass.job", "job."
_FRAME = re.compile(r'^( *)File "(.*)", line (\d+)(.*)$')
_CARETS = re.compile(r"^ *[~^]+ *$")


Part = tuple[str, str]
"""A text and its colour; `key` is the colour of a name with its value."""


class Console:
    """Formats lines for people; `shown` formats any value as one word, or quoted."""

    def __init__(self, stream: TextIO, shown: Callable[[object], str], *, colors: bool) -> None:
        self._stream = stream
        self._shown = shown
        self._colors = colors
        self._directory = ""
        with suppress(OSError):  # It may have been deleted.
            self._directory = f"{Path.cwd()}{os.sep}"

    def __call__(self, line: Mapping[str, Any]) -> str:
        """Return a line, and the blocks below it."""
        ours = _is_of_windlass(line)
        of_job = "job_id" in line or "job_ids" in line
        of_run = ours and of_job and str(line["event"]).startswith(_RUN)
        head = [*_head(line, of_run=of_run), *(_job(line) if of_job else ())]
        placed = {*_FIRST, *_BLOCKS, *(_OF_JOB if of_job else ()), *(_OF_RUN if of_run else ())}
        rest = [*(_run(line) if of_run else ()), *self._fields(line, placed, ours=ours)]
        blocks = [name for name in _BLOCKS if isinstance(line.get(name), str)]
        is_cut = ours and (line["level"] in _MINOR or "traceback" in blocks)
        written = [self._joined(head, rest, self._width() if is_cut else None)]
        written += [self._block(str(line[name])) for name in blocks]
        if ours and "traceback" in blocks and "job_id" in line:
            command = f"    → windlass jobs show {inert(str(line['job_id']))}"
            written.append(self._paint(command, "2"))
        return "\n".join(written)

    def _fields(self, line: Mapping[str, Any], placed: set[str], *, ours: bool) -> Iterator[Part]:
        """Yield the other fields; the worker comes last, unless the line is about a worker."""
        names = [name for name in line if name not in placed]
        is_about_worker = str(line["event"]).startswith("worker.")
        for name in sorted(names, key=lambda name: (name == "worker_id") is not is_about_worker):
            value = line[name]
            if value is None or (ours and isinstance(value, list | tuple | dict) and not value):
                continue
            is_id = ours and isinstance(value, UUID)
            text = str(value)[-_ID_LENGTH:] if is_id else self._shown(value)
            yield f"{inert(str(name))}={text}", "key"
        if not str(line["logger"]).startswith(_OURS):
            yield inert(str(line["logger"])), "2"

    def _joined(self, head: list[Part], rest: list[Part], width: int | None) -> str:
        left, written = width, []
        for number, (text, color) in enumerate(head + rest):
            gap = "" if number == 0 else " " if number < len(head) else "  "
            if left is not None and len(gap) + len(text) > left:
                if left > len(gap) + 1:
                    written.append(gap + self._paint(f"{text[: left - len(gap) - 1]}…", color))
                break
            written.append(gap + self._paint(text, color))
            left = None if left is None else left - len(gap) - len(text)
        return "".join(written).rstrip()

    def _block(self, text: str) -> str:
        """Indent a traceback, so that no text in it can look like a log line."""
        lines = inert_lines(text).split("\n")
        return "\n".join(f"    {self._frame(line)}" for line in lines)

    def _frame(self, line: str) -> str:
        if (frame := _FRAME.match(line)) is not None:
            indent, file, number, function = frame.groups()
            file = file.removeprefix(self._directory)
            place = f'File "{self._paint(file, "36")}", line {self._paint(number, "36")}'
            return f"{indent}{place}{self._paint(function, '2')}"
        if not line or not self._colors:
            return line
        if line.startswith(("Traceback ", "which ")):
            return self._paint(line, "2")
        if _CARETS.match(line):
            return self._paint(line, "31")
        return line if line.startswith(" ") else self._paint(line, "1;31")

    def _paint(self, text: str, color: str) -> str:
        if not self._colors or not color:
            return text
        if color == "key":
            name, equals, value = text.partition("=")
            return f"\x1b[2m{name}{equals}\x1b[0m{value}"
        return f"\x1b[{color}m{text}\x1b[0m"

    def _width(self) -> int | None:
        with suppress(OSError, ValueError):
            if self._stream.isatty():
                return os.get_terminal_size(self._stream.fileno()).columns or None
        return None


def _is_of_windlass(line: Mapping[str, Any]) -> bool:
    """Return whether Windlass wrote a line; lines logged through a context are the user's."""
    logger = str(line["logger"])
    by_context = logger == _CONTEXT and not str(line["event"]).startswith(_RUN)
    return logger.startswith(_OURS) and not by_context


def _head(line: Mapping[str, Any], *, of_run: bool) -> Iterator[Part]:
    moment = datetime.fromisoformat(line["timestamp"]).astimezone()
    yield moment.strftime("%H:%M:%S"), "2"
    name, color = _LEVELS.get(line["level"], (str(line["level"]), ""))
    yield f"{inert(name):5}", color
    event = inert(str(line["event"]))
    event = event.removeprefix(_RUN) if of_run else event
    yield f"{event:{_EVENT_WIDTH}}", "" if line["level"] in _MINOR else "1"


def _job(line: Mapping[str, Any]) -> Iterator[Part]:
    if "kind" in line:
        yield inert(str(line["kind"])), "36"
    if "job_id" in line:
        yield inert(str(line["job_id"]))[-_ID_LENGTH:], "2"
    elif isinstance(ids := line["job_ids"], list):
        yield f"{len(ids)} jobs", "2"


def _run(line: Mapping[str, Any]) -> Iterator[Part]:
    if isinstance(seconds := line.get("duration"), int | float):
        yield brief(timedelta(seconds=seconds)), ""
    reason, error = line.get("reason"), line.get("error")
    # Often an error is the whole reason, and is shown as such.
    is_said = reason == "failed" or (error is not None and str(reason) in str(error))
    if reason is not None and not is_said:
        yield _cut(str(reason)), ""
    elif isinstance(attempt := line.get("attempt"), int) and attempt > 1:
        yield f"attempt {attempt}", "2"
    if (after := line.get("next")) is not None:
        yield f"again in {inert(str(after))}", ""
    if error is not None:
        yield _cut(str(error)), "31"


def _cut(text: str) -> str:
    shown = inert(text.partition("\n")[0])
    return shown if len(shown) <= _ERROR_LENGTH else f"{shown[:_ERROR_LENGTH]}…"
