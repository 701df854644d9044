"""Owns charts as SVG, drawn here: no script and no inline style; a label says what each shows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from markupsafe import Markup

from windlass.core.stats.cluster_sample import EVERY
from windlass.core.values import figures
from windlass.core.values.durations import human
from windlass.core.values.text import inert

_WIDTH, _HEIGHT = 120, 28
_TALL = 60
_GAP = 2
_SAMPLE_SECONDS = int(EVERY.total_seconds())
"""Seconds between two points of a curve."""


def sparkline(values: Sequence[float], label: str, tone: str = "flow") -> Markup:
    """Draw a small line of rates, filled below."""
    if not any(values):
        return _empty(label)
    points = _points(values, max(values), _WIDTH, _HEIGHT - 2, top=1)
    return Markup(
        '<svg class="spark tone-{}" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" '
        'aria-label="{}"><path class="area" d="M0,{} L{} L{},{} Z"/><polyline class="stroke" '
        'points="{}"/></svg>'
    ).format(tone, _WIDTH, _HEIGHT, label, _HEIGHT, points, _WIDTH, _HEIGHT, points)


def bars(values: Sequence[float], label: str, bad: Sequence[float] = ()) -> Markup:
    """Draw counts as bars, with the bad part of each at its foot."""
    if not any(values):
        return _empty(label)
    most, width = max(values), _WIDTH / len(values)
    parts = [Markup("")]
    for number, value in enumerate(values):
        x = number * width + _GAP / 2
        wide = max(width - _GAP, 1)
        tall = value / most * (_HEIGHT - 2)
        parts.append(_rect("bar", x, _HEIGHT - max(tall, 1 if value else 0), wide, max(tall, 0)))
        if number < len(bad) and bad[number]:
            foot = max(min(bad[number] / most, 1.0) * (_HEIGHT - 2), 1.5)
            parts.append(_rect("bar bad", x, _HEIGHT - foot, wide, foot))
    tone = "bad" if values is bad else "flow"
    return Markup(
        '<svg class="spark tone-{}" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" '
        'aria-label="{}">{}</svg>'
    ).format(tone, _WIDTH, _HEIGHT, label, Markup("").join(parts))


def rates(arrivals: Sequence[float], services: Sequence[float], label: str) -> Markup:
    """Draw two small lines above each other: what came, and what left."""
    most = max([*arrivals, *services, 0.0])
    if not most:
        return _empty(label)
    lines = Markup("").join(
        _stroke(values, most, tone)
        for values, tone in ((services, "out"), (arrivals, "in"))
        if values
    )
    return Markup(
        '<svg class="spark" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" '
        'aria-label="{}">{}</svg>'
    ).format(_WIDTH, _HEIGHT, label, lines)


def _stroke(values: Sequence[float], most: float, tone: str) -> Markup:
    points = _points(values, most, _WIDTH, _HEIGHT - 2, top=1)
    return Markup('<polyline class="stroke tone-{}" points="{}"/>').format(tone, points)


def throughput(
    arrivals: Sequence[float], services: Sequence[float], marks: Sequence[tuple[float, str]] = ()
) -> Markup:
    """Draw the rates at which jobs came and left; the labels around it are text, of any width.

    `marks` are seconds before now, each with a name: a line stands at each of them.
    """
    most = max([*arrivals, *services, 0.0]) or 1.0
    grid = Markup("").join(
        Markup('<line class="grid" x1="0" y1="{0}" x2="{1}" y2="{0}"/>').format(y, _WIDTH)
        for y in (1, _TALL // 2, _TALL - 1)
    )
    lines = Markup("")
    for values, tone in ((services, "out"), (arrivals, "in")):
        if values:
            points = _points(values, most, _WIDTH, _TALL - 2, top=1)
            if tone == "out":
                lines += Markup('<path class="area tone-out" d="M0,{0} L{1} L{2},{0} Z"/>').format(
                    _TALL, points, _WIDTH
                )
            lines += Markup('<polyline class="stroke tone-{}" points="{}"/>').format(tone, points)
    seconds = _SAMPLE_SECONDS * max(len(arrivals), len(services), 1)
    for ago, name in marks:
        x = f"{(1 - ago / seconds) * _WIDTH:.1f}"
        lines += Markup(
            '<line class="mark" x1="{0}" y1="0" x2="{0}" y2="{1}"><title>{2}</title></line>'
        ).format(x, _TALL, inert(name))
    label = f"Jobs a second over the last minutes: at most {figures.rate(most)}"
    return Markup(
        '<div class="chart"><div class="axis" aria-hidden="true"><span>{}</span><span>{}</span>'
        '<span>0</span></div><svg viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" '
        'aria-label="{}">{}{}</svg><div class="base" aria-hidden="true"><span>{}</span>'
        "<span>now</span></div></div>"
    ).format(
        figures.rate(most),
        figures.rate(most / 2),
        _WIDTH,
        _TALL,
        label,
        grid,
        lines,
        _span(arrivals, services),
    )


def gauge(used: float, size: float, label: str) -> Markup:
    """Draw how much of something is in use."""
    share = min(used / size, 1.0) if size else 0.0
    tone = "full" if share >= 0.95 else "flow"
    return Markup(
        '<svg class="gauge tone-{}" viewBox="0 0 100 6" preserveAspectRatio="none" role="img" '
        'aria-label="{}"><rect class="track" width="100" height="6"/><rect class="fill" '
        'width="{:.1f}" height="6"/></svg>'
    ).format(tone, label, share * 100)


def parts(counts: Sequence[tuple[str, int]], label: str) -> Markup:
    """Draw shares of a whole, each in the colour of its state."""
    total = sum(number for _, number in counts) or 1
    drawn, x = [], 0.0
    for word, number in counts:
        wide = number / total * 100
        drawn.append(
            Markup('<rect class="state-{}" x="{:.2f}" width="{:.2f}" height="6"/>').format(
                word.replace(" ", "-"), x, wide
            )
        )
        x += wide
    return Markup(
        '<svg class="gauge" viewBox="0 0 100 6" preserveAspectRatio="none" role="img" '
        'aria-label="{}"><rect class="track" width="100" height="6"/>{}</svg>'
    ).format(label, Markup("").join(drawn))


def _span(*curves: Sequence[float]) -> str:
    points = max(map(len, curves))
    return f"{human(timedelta(seconds=points * _SAMPLE_SECONDS))} ago" if points else ""


def marks_within(
    points: int, now: datetime, moments: Iterable[tuple[datetime, str]]
) -> list[tuple[float, str]]:
    """Return how long ago moments were that lie within the last points of a chart."""
    found = (((now - at).total_seconds(), name) for at, name in moments)
    return [each for each in found if 0 <= each[0] <= points * _SAMPLE_SECONDS]


def _points(
    values: Sequence[float], most: float, wide: float, tall: float, *, top: float = 0
) -> str:
    known = list(values) if len(values) > 1 else [*values, *values]
    step = wide / (len(known) - 1)
    return " ".join(
        f"{number * step:.1f},{top + tall - value / (most or 1) * tall:.1f}"
        for number, value in enumerate(known)
    )


def _rect(kind: str, x: float, y: float, width: float, height: float) -> Markup:
    return Markup('<rect class="{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"/>').format(
        kind, x, y, width, height
    )


def _empty(label: str) -> Markup:
    return Markup('<span class="nothing" title="{}">\N{EN DASH}</span>').format(label)
