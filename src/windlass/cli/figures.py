"""Owns how figures are written: rates, shares, spans, amounts; and as facts for scripts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from typing import Any

import msgspec
from rich.text import Text

from windlass.cli import facts, show
from windlass.core.stats import Stats

UNKNOWN = "?"
_LONGEST = 10.0**9


def rate(per_second: float | None, prefix: str = "") -> Text:
    """Write how many a second: `0.25`, `12.5`, `1,200`; `?` if that is not known."""
    return _known(per_second, lambda value: prefix + _number(value))


def amount(value: float | None) -> Text:
    """Write how many, which need not be whole: `0.3`, `6.2`, `120`."""
    return _known(value, _number)


def seconds(value: float | None) -> Text:
    """Write a span that is told in seconds; `?` if it is not known."""
    return _known(value, lambda known: show.short(_span(known)) if known else "0s")


def percent(share: float | None) -> str:
    """Write a share, or how much of a CPU, in percent."""
    return UNKNOWN if share is None else f"{share:.0%}"


def figures_facts(found: Stats) -> facts.Facts:
    """Tell all figures: by the names of their fields, times as ISO 8601, spans in seconds."""
    told: facts.Facts = _plain(found)
    return told


def _plain(value: Any) -> Any:
    match value:
        case datetime():
            return facts.iso(value)
        case Mapping():
            return {name: _plain(each) for name, each in value.items()}
        case frozenset():
            return sorted(value)
        case tuple():
            return [_plain(each) for each in value]
        case msgspec.Struct():
            return msgspec.to_builtins(value)
        case _ if is_dataclass(value):
            return {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
        case _:
            return value


def _known(value: float | None, write: Any) -> Text:
    return Text(UNKNOWN, "dim") if value is None else Text(write(value), "" if value else "dim")


def _span(seconds: float) -> timedelta:
    return timedelta(seconds=min(seconds, _LONGEST))


def _number(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    digits = f"{value:.2f}" if value < 10 else f"{value:.1f}"
    return digits.rstrip("0").rstrip(".") if value else "0"
