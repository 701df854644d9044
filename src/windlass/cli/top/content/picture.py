"""Owns the picture as lines of text: the load, the alarms, and the panels that fit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC

from rich.text import Text

from windlass.app.snapshot import Snapshot
from windlass.cli.output.sparklines import spark
from windlass.cli.top.content.cells import clipped, fitted, printable
from windlass.cli.top.content.columns import fit, heading, line
from windlass.cli.top.content.panels import PANELS, Row
from windlass.cli.top.content.rows import gauge
from windlass.cli.top.content.sheets import alarm_lines
from windlass.cli.top.selection import Rows, Selection
from windlass.core.alarms import is_never
from windlass.core.values import figures

_MIN_LINES_OF_ALL_PANELS = 12
_MIN_LINES_OF_TWO_ALARMS = 20
_MAX_ALARMS = 6
_MIN_COLUMNS_OF_RATES_AGE = 60


def picture(snapshot: Snapshot | None, selection: Selection, width: int, height: int) -> list[Text]:
    """Return exactly `height` lines, none wider than `width`."""
    rows = selection.rows(snapshot)
    lines = head(snapshot, width)
    if snapshot is not None:
        # Alarms get the lines that the panels leave, and the most urgent ones always get some.
        room = height - len(lines)
        alone = room - 1 < _MIN_LINES_OF_ALL_PANELS
        needed = len(rows[selection.panel]) + 1 if alone else _needed(rows)
        least = 1 if height + 1 < _MIN_LINES_OF_TWO_ALARMS else 2
        lines += shortened_alarms(snapshot, width, min(max(room - needed, least), _MAX_ALARMS))
        if height - len(lines) > needed:
            lines.append(Text())
    lines += _panels(snapshot, selection, rows, width, height - len(lines))
    lines += [Text()] * (height - len(lines))
    return [clipped(text, width) for text in lines[:height]]


def print_out(snapshot: Snapshot, width: int) -> list[Text]:
    """Return the lines of a picture with all rows, for a file or a ticket."""
    lines = [*head(snapshot, width), *alarm_lines(snapshot)]
    selection = Selection()
    for number, rows in enumerate(selection.rows(snapshot)):
        panel = _panel(selection, number, rows, len(rows) + 2, width)
        lines += [Text(), *panel]
    return [clipped(text, width) for text in lines]


# -- above the panels ------------------------------------------------------------------------------


def head(snapshot: Snapshot | None, width: int) -> list[Text]:
    """Return the title, and the load once it is known."""
    title = Text("windlass top", "bold")
    if snapshot is None:
        return [title]
    right = f"{snapshot.stats.at.astimezone(UTC):%H:%M:%S} UTC"
    if width >= _MIN_COLUMNS_OF_RATES_AGE:
        right = f"{_rates_age(snapshot)}  {right}"
    left = Text.assemble(title, f"  {printable(snapshot.location)}")
    room = max(width - len(right) - 1, 0)
    return [Text.assemble(fitted(left, room), " ", (right, "dim")), _load(snapshot, width)]


def shortened_alarms(snapshot: Snapshot, width: int, limit: int) -> list[Text]:
    """Return the lines of at most `limit` alarms, the last with the number of others."""
    lines = alarm_lines(snapshot)
    if len(lines) <= limit:
        return lines
    more = f"  +{len(lines) - limit} more: !"
    last = fitted(lines[limit - 1], max(width - len(more), 1))
    return [*lines[: limit - 1], Text.assemble(last, (more, "bold"))]


def _rates_age(snapshot: Snapshot) -> str:
    stats = snapshot.stats
    if stats.sample_age is None or stats.arrival_rate is stats.service_rate is None:
        return "rates unknown yet"
    return f"rates sampled {figures.span(round(stats.sample_age))} ago"


def _load(snapshot: Snapshot, width: int) -> Text:
    stats = snapshot.stats
    lacking = stats.slots_needed is not None and stats.slots_needed > stats.slots
    gauged = gauge(stats.utilisation or 0.0, 10)
    parts = [
        Text.assemble("slots ", gauged, f" {stats.busy}/{stats.slots}"),
        Text.assemble("needs ", (figures.rate(stats.slots_needed), "red" if lacking else "bold")),
        Text.assemble("in ", (_a_second(stats.arrival_rate), "bold")),
        Text.assemble("out ", (_a_second(stats.service_rate), "bold")),
        _empty_in(snapshot),
        *_pools(snapshot),
    ]
    for name, values in (("in", stats.arrivals), ("out", stats.services)):
        if values:
            parts.append(Text.assemble(f"{name} ", (spark(values, len(values)), "cyan")))
    return joined(parts, width)


def _pools(snapshot: Snapshot) -> Iterator[Text]:
    stats = snapshot.stats
    short = {shortage.pool for shortage in stats.short}
    for name, used, size in (
        ("threads", stats.in_threads, stats.threads),
        ("isolated", stats.in_isolated_processes, stats.isolated_processes),
    ):
        if size:
            is_short = any(pool.startswith(name) for pool in short)
            style = "red" if is_short else "bold" if used else "dim"
            yield Text.assemble(f"{name} ", (f"{used}/{size}", style))


def _a_second(rate: float | None) -> str:
    return figures.rate(rate) + ("" if rate is None else "/s")


def _empty_in(snapshot: Snapshot) -> Text:
    stats = snapshot.stats
    if stats.seconds_to_empty is not None:
        return Text.assemble("empty in ", (figures.span(stats.seconds_to_empty), "bold"))
    if is_never(stats):
        return Text.assemble("empty ", ("never", "red"))
    return Text.assemble("empty in ", figures.UNKNOWN)


# -- the panels ------------------------------------------------------------------------------------


def _panels(
    snapshot: Snapshot | None, selection: Selection, rows: Rows, width: int, room: int
) -> list[Text]:
    chosen = selection.panel
    selected = selection.position(rows)
    unknown = snapshot is None
    if room < _MIN_LINES_OF_ALL_PANELS:
        return _panel(selection, chosen, rows[chosen], room, width, selected, unknown=unknown)
    gap = 1 if _needed(rows) <= room else 0
    heights = _heights(rows, room - gap * (len(PANELS) - 1), chosen)
    lines: list[Text] = []
    for number, height in enumerate(heights):
        lines += [Text()] * (gap if lines else 0)
        marked = selected if number == chosen else None
        lines += _panel(selection, number, rows[number], height, width, marked, unknown=unknown)
    return lines


def _needed(rows: Rows) -> int:
    return sum(max(len(panel), 1) + 1 for panel in rows) + len(PANELS) - 1


def _heights(rows: Rows, room: int, selected: int) -> list[int]:
    """Return the height of each panel, with its heading: an equal share, and what others leave."""
    needs = [max(len(panel), 1) + 1 for panel in rows]
    heights = [min(need, room // len(needs)) for need in needs]
    for number in sorted(range(len(needs)), key=lambda number: number != selected):
        heights[number] += min(needs[number] - heights[number], room - sum(heights))
    return heights


def _panel(
    selection: Selection,
    number: int,
    rows: Sequence[Row],
    height: int,
    width: int,
    selected: int | None = None,
    *,
    unknown: bool = False,
) -> list[Text]:
    panel = PANELS[number]
    widths = fit(panel.columns, width - 1)
    last_first = max(len(rows) - height + 1, 0)
    first = 0 if selected is None else min(max(selected - height // 2 + 1, 0), last_first)
    shown = rows[first : first + height - 1]
    some = f" {len(shown)} of {len(rows)}" if len(shown) < len(rows) else ""
    title = Text.assemble((f"{number + 1} {panel.name}", "bold"), (some, "not bold"))
    top = fitted(Text.assemble(" ", heading(panel.columns, widths, title)), width)
    top.stylize("underline cyan" if number == selection.panel else "underline dim")
    lines = [top]
    for index, row in enumerate(shown, first):
        text = line(panel.columns, widths, row.cells)
        if index == selected:
            lines.append(fitted(Text.assemble("▸", text.plain), width))
            lines[-1].stylize("reverse")
        else:
            lines.append(Text.assemble(" ", text))
    if not rows and height > 1:
        empty = "no data yet" if unknown else panel.empty
        reason = f"nothing matches {selection.filter!r}" if selection.filter else empty
        lines.append(Text(f" {reason}", "dim"))
    return lines


# -- below -----------------------------------------------------------------------------------------


def key_line(keys: Sequence[tuple[str, str]], width: int) -> Text:
    """Return the keys and their effects, as many as fit."""
    parts = [Text.assemble((key, "bold"), (f" {effect}", "dim")) for key, effect in keys]
    return joined(parts, width, "  ")


def joined(parts: Sequence[Text], width: int, gap: str = "   ") -> Text:
    """Join as many parts as fit."""
    line = Text()
    for part in parts:
        longer = Text.assemble(line, gap if line else "", part)
        if longer.cell_len > width:
            break
        line = longer
    return line
