"""Owns how figures look in narrow columns: at most six characters, and a dash if unknown."""

from __future__ import annotations

UNKNOWN = "-"
_UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_SPANS = ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "m"), (60, "m", 1, "s"))


def count(number: float, *, capped: bool = False) -> str:
    """Format a count: `9,999`, `12.3k`, `4.5M`; `60.0k+` if there are more."""
    return (_short(number) if abs(number) >= 10_000 else f"{number:,.0f}") + ("+" if capped else "")


def rate(number: float | None) -> str:
    """Format a number per second: `0.03`, `4.5`, `120`, `12.3k`."""
    if number is None:
        return UNKNOWN
    if number == 0:
        return "0"
    if number < 0.01:
        return "<0.01"
    if number < 0.9995:
        return f"{number:.2f}"
    return f"{number:.1f}" if number < 99.95 else count(round(number))


def span(seconds: float | None) -> str:
    """Format a duration by its two greatest units: `350ms`, `2.5s`, `3m12s`, `2d04h`."""
    if seconds is None:
        return UNKNOWN
    if seconds < 0.0095:
        return f"{seconds * 1000:.1f}ms" if seconds > 0 else "0s"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f}ms"
    if seconds < 9.95:
        return f"{seconds:.1f}".removesuffix(".0") + "s"
    if seconds >= 100 * 86_400:
        return f"{seconds / 86_400:,.0f}d"
    whole = round(seconds)
    for size, unit, part, parts in _SPANS:
        if whole >= size:
            return f"{whole // size}{unit}{whole % size // part:02}{parts}"
    return f"{whole}s"


def share(part: float | None) -> str:
    """Format a share: `0%`, `<1%`, `45%`."""
    if part is None:
        return UNKNOWN
    return "<1%" if 0 < part < 0.005 else f"{part:.0%}"


def size(bytes_: float | None) -> str:
    """Format an amount of memory: `512M`, `1.2G`."""
    return UNKNOWN if bytes_ is None else _short(bytes_)


def _short(number: float) -> str:
    for unit, name in _UNITS:
        if abs(number) >= unit * 0.9995:
            scaled = number / unit
            return f"{scaled:.1f}{name}" if scaled < 99.95 else f"{scaled:.0f}{name}"
    return f"{number:.0f}"
