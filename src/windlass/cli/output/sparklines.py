"""Owns sparklines of past values, and bars of shares."""

from __future__ import annotations

from collections.abc import Sequence

_STEPS = "▁▂▃▄▅▆▇█"
_FULL, _EMPTY = "━", "─"
ASCII = str.maketrans(_STEPS + _FULL + _EMPTY, "_.:-=+*##-")
"""Their replacement where a terminal knows no Unicode."""


def spark(values: Sequence[float], width: int, *, most: float | None = None) -> str:
    """Draw the latest values, the newest at the right edge; `most` is the value of a full block.

    Zero is the lowest step, and any other value is higher than that. Unknown values are spaces.
    """
    shown = values[-width:] if width > 0 else ()
    top = max(shown, default=0.0) if most is None else most
    return "".join(_step(value, top) for value in shown).rjust(width)


def bar(share: float, width: int) -> tuple[str, str]:
    """Return the used and the free part of a bar; a share above zero is always visible."""
    share = min(max(share, 0.0), 1.0)
    used = max(round(share * width), 1 if share > 0 and width else 0)
    return _FULL * used, _EMPTY * (width - used)


def _step(value: float, top: float) -> str:
    if value <= 0 or top <= 0:
        return _STEPS[0]
    last = len(_STEPS) - 1
    return _STEPS[min(max(round(value / top * last), 1), last)]
