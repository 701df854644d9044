"""Owns the main screen: the load, the alarms and the four panels, and the filter below them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.widgets import Input

from windlass.cli.top.actions import pause_or_resume, redrive_group
from windlass.cli.top.content.panels import PANELS
from windlass.cli.top.content.picture import picture
from windlass.cli.top.screens.base import MOVES, Lines, TopScreen, keys
from windlass.cli.top.screens.row import RowScreen
from windlass.cli.top.screens.text import AlarmsScreen, HelpScreen

_MAX_FILTER = 100
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


class MainScreen(TopScreen):
    """The panels; while a filter is typed, keys are letters of it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *MOVES,
        *keys(
            *((str(number + 1), f"panel({number})") for number in range(len(PANELS))),
            ("tab,right", "turn(1)"),
            ("shift+tab,left", "turn(-1)"),
            ("enter", "open"),
            ("escape", "unfilter"),
            ("slash", "filter"),
            ("p", "pause"),
            ("r", "redrive"),
            ("question_mark", "help"),
            ("exclamation_mark", "alarms"),
            ("q", "quit"),
        ),
    ]

    is_typing = False

    def compose(self) -> ComposeResult:
        yield Lines(id="picture")
        yield Input(id="filter", max_length=_MAX_FILTER, placeholder="filter", compact=True)
        yield Lines(id="foot")

    def key_effects(self) -> Sequence[tuple[str, str]]:
        if self.is_typing:
            return (("enter", "keep"), ("esc", "all"))
        text = self.top.selection.filter
        return ((("esc", f"all, not only {text!r}"),) if text else ()) + _KEYS

    def show(self) -> None:
        if self.is_mounted:
            width, height = self.size
            height -= 2 if self.is_typing else 1
            lines = picture(self.top.snapshot, self.top.selection, width, height)
            self.query_one("#picture", Lines).show(lines)
        super().show()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Leave all keys but Enter and Esc to the filter while it is typed."""
        if self.is_typing and action not in ("open", "unfilter"):
            return False
        return super().check_action(action, parameters)

    def action_move(self, step: int) -> None:
        self.top.selection.move(self.top.snapshot, step)
        self.top.say("")

    def action_panel(self, number: int) -> None:
        self.top.selection.panel = number
        self.top.say("")

    def action_turn(self, step: int) -> None:
        self.action_panel((self.top.selection.panel + step) % len(PANELS))

    def action_open(self) -> None:
        if self.is_typing:
            self._type(on=False)
        elif row := self.top.selection.take(self.top.snapshot):
            self.app.push_screen(RowScreen(row, self.top.selection.panel))
        else:
            self.top.say("no row is selected")

    def action_filter(self) -> None:
        self._type(on=True)

    def action_unfilter(self) -> None:
        self._type(on=False)
        self.query_one(Input).value = self.top.selection.filter = ""
        self.top.say("")

    def _type(self, *, on: bool) -> None:
        self.is_typing = on
        field = self.query_one(Input)
        field.set_class(on, "-typing")
        self.set_focus(field if on else None)
        self.show()

    def on_input_changed(self, event: Input.Changed) -> None:
        self.top.selection.filter = event.value.strip()
        self.show()

    def action_pause(self) -> None:
        row = self.top.selection.take(self.top.snapshot)
        self.top.ask(pause_or_resume(row, self.top.snapshot))

    def action_redrive(self) -> None:
        self.top.ask(redrive_group(self.top.selection.take(self.top.snapshot)))

    def action_help(self) -> None:
        self.app.push_screen(HelpScreen())

    def action_alarms(self) -> None:
        self.app.push_screen(AlarmsScreen())

    def action_quit(self) -> None:
        self.top.end(0)
