"""Owns sparklines: a row of numbers as a row of little bars, as wide as there is room."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

_BARS = "▁▂▃▄▅▆▇█"
_ASCII = "_.-=+*%#"


def spark(values: Sequence[float], console: Console, *, most: int = 24) -> str:
    """Draw the last numbers, each against the greatest of them; where all are 0, a low line.

    A number above 0 is never drawn as low as 0. A terminal that knows no Unicode gets ASCII.
    """
    bars = _ASCII if console.options.ascii_only else _BARS
    shown = [max(value, 0.0) for value in values[-most:]]
    top = max(shown, default=0.0)
    if top <= 0:
        return bars[0] * len(shown)
    return "".join(bars[_height(value / top, len(bars) - 1)] for value in shown)


def _height(share: float, top: int) -> int:
    return 0 if share <= 0 else max(1, round(share * top))
