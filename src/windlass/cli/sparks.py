"""Owns pictures of a line's height: sparklines of what was, and bars of how much is used."""

from __future__ import annotations

from collections.abc import Sequence

_STEPS = "▁▂▃▄▅▆▇█"
_FULL, _EMPTY = "━", "─"
ASCII = str.maketrans(_STEPS + _FULL + _EMPTY, "_.:-=+*##-")
"""What stands for these where a terminal knows no Unicode."""


def spark(values: Sequence[float], width: int, *, most: float | None = None) -> str:
    """Draw the latest values, the newest at the right edge; `most` is what a full block stands for.

    Nothing at all is the lowest step, and whatever is more than nothing is higher than that. Where
    nothing was recorded, there is a space.
    """
    shown = values[-width:] if width > 0 else ()
    top = max(shown, default=0.0) if most is None else most
    return "".join(_step(value, top) for value in shown).rjust(width)


def bar(share: float, width: int) -> tuple[str, str]:
    """Return the used and the free part of a bar; what is used at all is seen."""
    share = min(max(share, 0.0), 1.0)
    used = max(round(share * width), 1 if share > 0 and width else 0)
    return _FULL * used, _EMPTY * (width - used)


def _step(value: float, top: float) -> str:
    if value <= 0 or top <= 0:
        return _STEPS[0]
    last = len(_STEPS) - 1
    return _STEPS[min(max(round(value / top * last), 1), last)]
