"""Owns how figures are written: rates, shares, spans, amounts."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from rich.text import Text

from windlass.core.values.durations import brief

UNKNOWN = "?"
_LONGEST = 10.0**9


def rate(per_second: float | None, prefix: str = "") -> Text:
    """Write a rate per second: `0.25`, `12.5`, `1,200`; `?` if it is not known."""
    return _known(per_second, lambda value: prefix + _number(value))


def amount(value: float | None) -> Text:
    """Write an amount, which need not be whole: `0.3`, `6.2`, `120`."""
    return _known(value, _number)


def seconds(value: float | None) -> Text:
    """Write a span in seconds; `?` if it is not known."""
    return _known(value, lambda known: brief(_span(known)) if known else "0s")


def percent(share: float | None) -> str:
    """Write a share, or how much of a CPU, in percent."""
    return UNKNOWN if share is None else f"{share:.0%}"


def share_of(used: int, size: int | None) -> str:
    """Write how many are in use of how many: `2/10`; nothing if it is not known."""
    return "" if size is None else f"{used}/{size}"


def _known(value: float | None, write: Any) -> Text:
    return Text(UNKNOWN, "dim") if value is None else Text(write(value), "" if value else "dim")


def _span(seconds: float) -> timedelta:
    return timedelta(seconds=min(seconds, _LONGEST))


def _number(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    digits = f"{value:.2f}" if value < 10 else f"{value:.1f}"
    return digits.rstrip("0").rstrip(".") if value else "0"
