"""Owns the masking of log lines: fields masked by name, and the secrets of a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from windlass.core.payloads.redaction import MASK, Redaction
from windlass.observability.log_context import running

_TRACES = ("exception", "stack", "stack_info")
_AS_IS = "exc_info"


class _Process:
    redaction = Redaction()


def redact_lines(patterns: Iterable[str]) -> None:
    """Mask the usual fields, and those that match the patterns, in this process's log lines.

    Raises:
        ValueError: a pattern is no regular expression.
    """
    _Process.redaction = Redaction(patterns)


def redaction_in_force() -> Redaction:
    """Return the current redaction: in a run, that includes its secrets."""
    here = running.get()
    return _Process.redaction if here is None else here.redaction


def redact_fields(line: Mapping[str, Any]) -> dict[str, Any]:
    redaction = redaction_in_force()
    return {
        name: each if name == _AS_IS else _field(redaction, name, each)
        for name, each in line.items()
    }


def _field(redaction: Redaction, name: str, value: object) -> object:
    try:
        return redaction.field(name, value)
    except Exception:  # noqa: BLE001  Anything may stand in a user's __str__ or __eq__.
        return MASK


def redact_traces(line: dict[str, Any]) -> dict[str, Any]:
    for name in _TRACES:
        if isinstance(line.get(name), str):
            line[name] = redaction_in_force().text(line[name])
    return line
