"""Owns how values are written: a reader parses a user's text, and describes valid values."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from ipaddress import ip_address
from typing import Literal, NamedTuple

from windlass.core.jobs.spaces import DEFAULT_SPACE, Space
from windlass.core.payloads.redaction import Redaction
from windlass.core.values.durations import duration
from windlass.core.values.ranges import REMEDY, Bounds
from windlass.settings.encryption_keys import EncryptionKey, read_keys
from windlass.settings.model import Served

Unit = Literal["seconds", "milliseconds"]
_MAX_QUEUE_SLOTS = 100_000


def _whole(raw: object, _unit: Unit) -> int:
    if isinstance(raw, int) and not isinstance(raw, bool):
        return raw
    if isinstance(raw, str) and re.fullmatch(r"\s*[+-]?\d+\s*", raw, re.ASCII):
        return int(raw)
    raise ValueError("not a whole number")


def _bounds(raw: object, _unit: Unit) -> Bounds:
    return Bounds.read(raw)


def _span(raw: object, unit: Unit) -> timedelta:
    if isinstance(raw, str) and re.fullmatch(r"\s*\d+(\.\d+)?\s*", raw, re.ASCII):
        raw = float(raw)
    if isinstance(raw, int | float) and not isinstance(raw, bool):
        return duration(raw if unit == "seconds" else raw / 1000)
    if isinstance(raw, str | timedelta):
        return duration(raw)
    raise ValueError("not a time")


def _span_or_never(raw: object, unit: Unit) -> timedelta | None:
    if isinstance(raw, str) and raw.strip().lower() == "never":
        return None
    return _span(raw, unit)


def _on_or_off(raw: object, _unit: Unit) -> bool:
    if isinstance(raw, bool):
        return raw
    text = raw.strip().lower() if isinstance(raw, str) else ""
    if text in ("true", "yes", "on", "1"):
        return True
    if text in ("false", "no", "off", "0"):
        return False
    raise ValueError("neither on nor off")


def _url(raw: object, _unit: Unit) -> str:
    if isinstance(raw, str) and re.match(r"\s*[a-z][a-z0-9+.-]*://", raw):
        return raw.strip()  # A secret that was read from a file often ends in a line break.
    raise ValueError("not a URL")


def _names(raw: object, _unit: Unit) -> tuple[str, ...]:
    """Read a list, with commas or of TOML, in its order and without repetitions."""
    parts = raw.split(",") if isinstance(raw, str) else raw
    if not isinstance(parts, list | tuple) or not all(isinstance(part, str) for part in parts):
        raise ValueError("not a list of names")
    return tuple(dict.fromkeys(part.strip() for part in parts if part.strip()))


def _patterns(raw: object, unit: Unit) -> tuple[str, ...]:
    patterns = _names(raw, unit)
    Redaction(patterns)
    return patterns


def _keys(raw: object, _unit: Unit) -> tuple[EncryptionKey, ...]:
    return read_keys(raw)


def _queues(raw: object, unit: Unit) -> tuple[Served, ...]:
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
    if count is not None and not 1 <= count <= _MAX_QUEUE_SLOTS:
        raise ValueError("out of bounds")
    return Served(queue.strip(), count)


def _spaces(raw: object, unit: Unit) -> tuple[Space, ...]:
    """Read spaces like `mail=mail|mail-*,bulk=import`, or a table of them, in their order."""
    if isinstance(raw, tuple) and all(isinstance(each, Space) for each in raw):
        return raw
    if isinstance(raw, Mapping):
        spaces = [_space(name, queues, unit) for name, queues in raw.items()]
    else:
        pairs = [each.partition("=") for each in _names(raw, unit)]
        spaces = [_space(name, queues.split("|"), unit) for name, _, queues in pairs]
    if len({space.name for space in spaces}) < len(spaces):
        raise ValueError("a space is named twice")
    return tuple(spaces)


def _space(name: object, queues: object, unit: Unit) -> Space:
    text = name.strip() if isinstance(name, str) else ""
    space = Space(text, _names(queues, unit))
    if text == DEFAULT_SPACE or not re.fullmatch(r"[A-Za-z0-9_-]{1,40}", text) or not space.queues:
        raise ValueError("not a space with queues")
    return space


def _space_name(raw: object, _unit: Unit) -> str:
    text = raw.strip() if isinstance(raw, str) else ""
    if raw != "" and not re.fullmatch(r"[A-Za-z0-9_-]{1,40}", text):
        raise ValueError("not the name of a space")
    return text


def _one_of(*choices: str, **aliases: str) -> Reader:
    def read(raw: object, _unit: Unit) -> str:
        text = raw.strip().lower() if isinstance(raw, str) else ""
        text = aliases.get(text, text)
        if text not in choices:
            raise ValueError("not one of the choices")
        return text

    return Reader(f"one of {', '.join(choices)}", read)


class Reader(NamedTuple):
    """A parser of a user's text, and the description of valid values."""

    noun: str
    read: Callable[[object, Unit], object]


def _name(raw: object, _unit: Unit) -> str:
    if isinstance(raw, str) and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,39}", raw.strip(), re.ASCII):
        return raw.strip()
    raise ValueError("not a name")


def _host(raw: object, _unit: Unit) -> str:
    text = raw.strip() if isinstance(raw, str) else ""
    if text == "localhost":
        return "127.0.0.1"
    return str(ip_address(text))


def _token(raw: object, _unit: Unit) -> str:
    text = raw.strip() if isinstance(raw, str) else ""
    if raw in ("", "none"):
        return ""
    if not re.fullmatch(r"[!-~]{16,512}", text, re.ASCII):
        raise ValueError("not a token")
    return text


def _label(raw: object, _unit: Unit) -> str:
    text = raw.strip() if isinstance(raw, str) else ""
    if not re.fullmatch(r"[\w .:/-]{0,40}", text):
        raise ValueError("not a label")
    return text


def _listen(raw: object, unit: Unit) -> str:
    return raw if raw in ("off", "") else _url(raw, unit)


NAME = Reader("a name of at most 40 letters, digits and underscores", _name)
LISTEN = Reader("a URL like 'postgresql://host/database', or 'off'", _listen)
HOST = Reader("an IP address like '127.0.0.1' or '0.0.0.0'", _host)
LABEL = Reader("at most 40 letters, digits, spaces and . : / -", _label)
TOKEN = Reader("at least 16 visible ASCII characters without spaces", _token)
URL = Reader("a URL like sqlite:///windlass.db, postgresql://user@host/database or memory://", _url)
NUMBER = Reader("a whole number", _whole)
BOUNDS = Reader(REMEDY, _bounds)
TIME = Reader("a duration like '30s' (a plain number is in {unit})", _span)
AGE = Reader("a duration like '7d', or 'never' (a plain number is in {unit})", _span_or_never)
LIST = Reader("comma-separated names", _names)
PATTERNS = Reader(
    "comma-separated names of fields, or regular expressions for them (-name excludes one)",
    _patterns,
)
KEYS = Reader(
    "comma-separated keys as printed by `windlass keys new`, optionally named like k2:KEY",
    _keys,
)
QUEUES = Reader(
    "comma-separated names, each with its maximum of slots if it has one: 'mail=10,default'",
    _queues,
)
SPACES = Reader(
    "comma-separated spaces with their queues, other than default: 'mail=mail|mail-*,bulk=import'",
    _spaces,
)
SPACE = Reader("at most 40 letters, digits, hyphens and underscores", _space_name)
LEVEL = _one_of("debug", "info", "warning", "error", "critical", warn="warning", fatal="critical")
SWITCH = Reader("true or false", _on_or_off)
FORMAT = _one_of("auto", "console", "json")
TRACES = _one_of("auto", "on", "off")
