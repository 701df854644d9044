"""Owns the whole picture: the load, what is wrong, the panels that fit, a sheet over them, keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC

from rich.text import Text

from windlass.cli.screen import figures
from windlass.cli.screen.cells import cut, fitted, tame
from windlass.cli.screen.grid import fit, heading, line
from windlass.cli.screen.panels import PANELS, Looked, Row
from windlass.cli.screen.rows import gauge, is_never
from windlass.cli.screen.sheets import HELP, told_alarms
from windlass.cli.screen.view import Rows, View, position, rows_of
from windlass.cli.sparks import spark

_ALL_PANELS = 12
"""How many lines there have to be for more than the chosen panel."""
_LOW = 20
_ALARMS = 6
_KEYS = (
    ("q", "quit"),
    ("?", "help"),
    ("tab", "panel"),
    ("enter", "look"),
    ("p", "pause"),
    ("r", "redrive"),
    ("/", "filter"),
    ("!", "wrong"),
    ("↑↓", "row"),
)


@dataclass(frozen=True, kw_only=True)
class Scene:
    """All that a picture is made of."""

    looked: Looked | None
    view: View
    sheet: Sequence[Text] = ()
    """What is on the sheet of a row, if that is looked at."""
    trouble: str = ""
    """Why the figures are not up to date."""


def frame(scene: Scene, width: int, height: int) -> list[Text]:
    """Draw a picture of exactly so many lines, none wider than that."""
    rows = rows_of(scene.looked, scene.view.filter)
    top = _head(scene, rows, width, height)
    room = height - len(top) - 1
    if scene.view.sheet is not None:
        middle = _sheet(scene, room)
    else:
        middle = _panels(scene, rows, width, room)
    lines = [*top, *middle[:room], *(Text() for _ in range(room - len(middle)))]
    drawn = [*lines[: max(height - 1, 0)], _foot(scene, width)]
    return [_clipped(each, width) for each in drawn[-height:]]


def print_out(looked: Looked, width: int) -> list[Text]:
    """Draw a picture for paper: with all rows, and without what keys are for."""
    scene = Scene(looked=looked, view=View())
    rows = rows_of(looked, "")
    lines = [_title(scene, width), _load(looked, width), *told_alarms(looked)]
    for number, panel in enumerate(rows):
        room = max(len(panel), 1) + 1
        lines += [Text(), *_panel(scene, number, panel, width, room, shown=None)]
    return [_clipped(each, width) for each in lines]


# -- above -----------------------------------------------------------------------------------------


def _head(scene: Scene, rows: Rows, width: int, height: int) -> list[Text]:
    lines = [_title(scene, width)]
    if scene.looked is None:
        return lines
    lines.append(_load(scene.looked, width))
    if scene.view.sheet is not None:
        wrong = [] if scene.view.sheet == "alarms" else _wrong(scene.looked, width, 1)
        return [*lines, *wrong, Text()]
    # What the panels leave, and in any case what is most urgent.
    alone = height - len(lines) - 2 < _ALL_PANELS
    needed = len(rows[scene.view.panel]) + 1 if alone else _needed(rows)
    left = height - len(lines) - 1 - needed
    lines += _wrong(scene.looked, width, min(max(left, 1 if height < _LOW else 2), _ALARMS))
    return [*lines, Text()] if height - len(lines) - 1 > needed else lines


def _title(scene: Scene, width: int) -> Text:
    looked = scene.looked
    right = "" if looked is None else f"{looked.stats.at.astimezone(UTC):%H:%M:%S} UTC"
    left = Text.assemble(
        ("windlass top", "bold"), f"  {'' if looked is None else tame(looked.location)}"
    )
    room = max(width - len(right) - 1, 0)
    return Text.assemble(fitted(left, room), " ", (right, "dim"))


def _load(looked: Looked, width: int) -> Text:
    """Say how much there is to do, and whether there is enough to do it with."""
    stats = looked.stats
    used = stats.utilisation
    lacking = stats.slots_needed is not None and stats.slots_needed > stats.slots
    parts = [
        Text.assemble("slots ", gauge(used or 0.0, 10), f" {stats.busy}/{stats.slots}"),
        Text.assemble("needs ", (figures.rate(stats.slots_needed), "red" if lacking else "bold")),
        Text.assemble("in ", (_a_second(stats.arrival_rate), "bold")),
        Text.assemble("out ", (_a_second(stats.service_rate), "bold")),
        _drains(looked),
    ]
    for name, values in (("in", stats.arrivals), ("out", stats.services)):
        if values:
            parts.append(Text.assemble(f"{name} ", (spark(values, len(values)), "cyan")))
    return _joined(parts, width)


def _a_second(rate: float | None) -> str:
    return figures.rate(rate) + ("" if rate is None else "/s")


def _drains(looked: Looked) -> Text:
    stats = looked.stats
    if stats.drain_seconds is not None:
        return Text.assemble("drains ", (figures.span(stats.drain_seconds), "bold"))
    return Text.assemble("drains ", ("never", "red") if is_never(stats) else figures.UNKNOWN)


def _wrong(looked: Looked, width: int, most: int) -> list[Text]:
    told = told_alarms(looked)
    if len(told) <= most:
        return told
    more = f"  +{len(told) - most} more: !"
    last = fitted(told[most - 1], max(width - len(more), 1))
    return [*told[: most - 1], Text.assemble(last, (more, "bold"))]


# -- the panels ------------------------------------------------------------------------------------


def _panels(scene: Scene, rows: Rows, width: int, room: int) -> list[Text]:
    chosen = scene.view.panel
    if room < _ALL_PANELS:
        return _panel(scene, chosen, rows[chosen], width, room, shown=position(scene.view, rows))
    gap = 1 if _needed(rows) <= room else 0
    shares = _shares([len(each) for each in rows], room - gap * (len(PANELS) - 1), chosen)
    lines: list[Text] = []
    for number, panel in enumerate(rows):
        lines += [Text()] * (gap if lines else 0)
        shown = position(scene.view, rows) if number == chosen else None
        lines += _panel(scene, number, panel, width, shares[number], shown=shown)
    return lines


def _needed(rows: Rows) -> int:
    """Return how many lines all panels would have, with their headings and gaps."""
    return sum(max(len(each), 1) + 1 for each in rows) + len(PANELS) - 1


def _shares(wanted: Sequence[int], room: int, chosen: int) -> list[int]:
    """Return how many lines each panel has, its heading among them: what one leaves, others get."""
    needs = [max(each, 1) + 1 for each in wanted]
    shares = [min(need, room // len(needs)) for need in needs]
    others = [number for number in range(len(needs)) if number != chosen]
    for number in (chosen, *others):
        shares[number] += min(needs[number] - shares[number], room - sum(shares))
    return shares


def _panel(
    scene: Scene, number: int, rows: Sequence[Row], width: int, room: int, *, shown: int | None
) -> list[Text]:
    """Draw a heading and the rows around the one that is shown."""
    panel = PANELS[number]
    widths = fit(panel.fields, width - 1)
    first = 0 if shown is None else min(max(shown - room // 2 + 1, 0), max(len(rows) - room + 1, 0))
    seen = rows[first : first + room - 1]
    lines = [_heading(scene, number, rows, len(seen), width)]
    for index, row in enumerate(seen, first):
        drawn = line(panel.fields, widths, row.cells)
        if index == shown:
            drawn = fitted(Text.assemble("▸", drawn.plain), width)
            drawn.stylize("reverse")
        else:
            drawn = Text.assemble(" ", drawn)
        lines.append(drawn)
    if not rows and room > 1:
        unknown = "nothing is known yet" if scene.looked is None else panel.empty
        told = f"nothing here has {scene.view.filter!r} in it" if scene.view.filter else unknown
        lines.append(Text(cut(f" {told}", width), "dim"))
    return lines


def _heading(scene: Scene, number: int, rows: Sequence[Row], seen: int, width: int) -> Text:
    panel = PANELS[number]
    widths = fit(panel.fields, width - 1)
    some = f" {seen} of {len(rows)}" if seen < len(rows) else ""
    title = Text.assemble((f"{number + 1} {panel.name}", "bold"), (some, "not bold"))
    drawn = Text.assemble(" ", heading(panel.fields, widths, title))
    drawn = fitted(drawn, width)
    chosen = number == scene.view.panel
    drawn.stylize("underline cyan" if chosen else "underline dim")
    return drawn


# -- above the panels, and below -------------------------------------------------------------------


def _sheet(scene: Scene, room: int) -> list[Text]:
    if scene.view.sheet == "help":
        lines = list(HELP)
    elif scene.view.sheet == "alarms":
        lines = [] if scene.looked is None else told_alarms(scene.looked)
    else:
        lines = list(scene.sheet)
    first = scene.view.top
    if scene.view.sheet == "row" and scene.view.jobs:
        lines, at = _chosen(lines, str(scene.view.jobs[scene.view.job]))
        if len(scene.view.jobs) > 1:
            first = max(at - room + 2, 0)
    top = min(first, max(len(lines) - room, 0))
    return lines[top : top + room]


def _chosen(lines: Sequence[Text], job: str) -> tuple[list[Text], int]:
    """Mark the line of a job, and return at which it is."""
    at = next((number for number, line in enumerate(lines) if job in line.plain), 0)
    marked = [line.copy() for line in lines]
    if marked and job in marked[at].plain:
        marked[at].stylize("reverse")
    return marked, at


def _foot(scene: Scene, width: int) -> Text:
    view = scene.view
    if view.asked is not None:
        answer = " y/n "
        question = cut(view.asked.question, width - len(answer))
        return Text.assemble((question, "bold yellow"), (answer, "bold reverse"))
    if view.typing:
        return Text.assemble(
            ("filter: ", "bold"), view.filter, ("▏", "bold"), ("  enter, esc", "dim")
        )
    if view.note:
        return Text(cut(tame(view.note), width), "bold")
    if scene.trouble:
        return Text(cut(tame(scene.trouble), width), "bold red")
    if view.sheet is not None:
        return _joined([_key("esc", "back"), *_sheet_keys(view)], width, "  ")
    found = [_key("esc", f"all, not only {view.filter!r}")] if view.filter else []
    return _joined([*found, *(_key(key, does) for key, does in _KEYS)], width, "  ")


def _sheet_keys(view: View) -> list[Text]:
    if view.sheet == "job":
        return [_key("r", "retry"), _key("↑↓", "more"), _key("enter", "look again")]
    if view.sheet == "row" and view.jobs:
        return [_key("↑↓", "job" if len(view.jobs) > 1 else "more"), _key("enter", "the job")]
    return [_key("↑↓", "more"), *([_key("enter", "look again")] if view.sheet == "row" else [])]


def _key(key: str, does: str) -> Text:
    return Text.assemble((key, "bold"), (f" {does}", "dim"))


def _joined(parts: Sequence[Text], width: int, between: str = "   ") -> Text:
    """Put beside each other as many parts as there is room for."""
    made = Text()
    for part in parts:
        gap = between if made else ""
        if made.cell_len + len(gap) + part.cell_len > width:
            break
        made = Text.assemble(made, gap, part)
    return made


def _clipped(text: Text, width: int) -> Text:
    return fitted(text, width) if text.cell_len > width else text
