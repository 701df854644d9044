"""Owns the picture of a flow as SVG: jobs that are alike in one node, parents left of children."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from uuid import UUID

from markupsafe import Markup

from windlass.app.workflows.flow_rows import WORDS, Row
from windlass.core.workflows.flow_graph import ids_of
from windlass.web.rendering.formats import line

_WIDE, _TALL = 190, 54
_GAP_X, _GAP_Y = 60, 18
_MARGIN = 8
MAX_NODES = 150
"""The most nodes of a picture; the table below it has them all."""


def drawn(rows: Sequence[Row], flow: UUID, job_url: str) -> Markup:
    """Draw the rows of a flow; each node leads to its first job, if it is a single one."""
    shown = rows[:MAX_NODES]
    layers: dict[int, list[Row]] = defaultdict(list)
    for row in shown:
        layers[row.depth].append(row)
    places: dict[int, tuple[int, int]] = {}
    tallest = max((len(each) for each in layers.values()), default=1)
    for column, depth in enumerate(sorted(layers)):
        free = (tallest - len(layers[depth])) * (_TALL + _GAP_Y) // 2
        for number, row in enumerate(layers[depth]):
            x = _MARGIN + column * (_WIDE + _GAP_X)
            places[id(row)] = x, _MARGIN + free + number * (_TALL + _GAP_Y)
    wide = 2 * _MARGIN + len(layers) * (_WIDE + _GAP_X) - _GAP_X
    tall = 2 * _MARGIN + tallest * (_TALL + _GAP_Y) - _GAP_Y
    edges = Markup("").join(_edges(shown, places))
    nodes = Markup("").join(_node(row, places[id(row)], flow, job_url) for row in shown)
    return Markup(
        '<svg class="flow" width="{}" height="{}" viewBox="0 0 {} {}" role="group" '
        'aria-label="The jobs of this flow; the table below has the same">{}{}</svg>'
    ).format(wide, tall, wide, tall, edges, nodes)


def _edges(rows: Sequence[Row], places: dict[int, tuple[int, int]]) -> list[Markup]:
    drawn_edges = []
    for row in rows:
        x, y = places[id(row)]
        for parent in rows:
            if parent.name in row.after and parent.depth < row.depth:
                px, py = places[id(parent)]
                start, end = px + _WIDE, x
                middle = (start + end) / 2
                path = (
                    f"M{start},{py + _TALL // 2} C{middle},{py + _TALL // 2} "
                    f"{middle},{y + _TALL // 2} {end},{y + _TALL // 2}"
                )
                drawn_edges.append(Markup('<path class="edge" d="{}"/>').format(path))
    return drawn_edges


def _node(row: Row, place: tuple[int, int], flow: UUID, job_url: str) -> Markup:
    x, y = place
    counts = [(word, row.counts[word]) for word in WORDS if row.counts[word]]
    words = ", ".join(f"{number:,} {word}" if row.jobs > 1 else word for word, number in counts)
    title = line(
        f"{row.name} \N{MULTIPLICATION SIGN} {row.jobs:,}" if row.jobs > 1 else row.name, 26
    )
    bar, at = Markup(""), 0.0
    for word, number in counts:
        part = number / row.jobs * (_WIDE - 20)
        bar += Markup(
            '<rect class="state-{}" x="{:.1f}" y="{}" width="{:.1f}" height="5"/>'
        ).format(word.replace(" ", "-"), x + 10 + at, y + _TALL - 12, part)
        at += part
    body = Markup(
        '<rect class="node" x="{}" y="{}" width="{}" height="{}" rx="8"/>'
        '<text class="name" x="{}" y="{}">{}</text><text class="words" x="{}" y="{}">{}</text>{}'
        "<title>{}</title>"
    ).format(
        x,
        y,
        _WIDE,
        _TALL,
        x + 10,
        y + 19,
        title,
        x + 10,
        y + 35,
        line(words, 30),
        bar,
        line(f"{row.name} ({row.kind}): {words}"),
    )
    numbers = row.numbers[row.word]
    (first, *_) = ids_of(flow, numbers)
    return Markup('<a href="{}/{}">{}</a>').format(job_url, first, body)
