"""Owns the parts that all screens have in common: lines of text, and the last line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.geometry import Region
from textual.screen import Screen
from textual.strip import Strip
from textual.widget import Widget

from windlass.cli.top.content.cells import clipped, printable
from windlass.cli.top.content.picture import key_line

if TYPE_CHECKING:
    from windlass.cli.top.app import TopApp

_PAGE_LINES = 10
_LAST_LINE = 10**6


def keys(*bindings: tuple[str, str]) -> list[BindingType]:
    """Bind keys to actions; each is handled before the next key, so that typing ahead works."""
    return [Binding(key, action, show=False, priority=True) for key, action in bindings]


MOVES = keys(
    ("up,k", "move(-1)"),
    ("down,j", "move(1)"),
    ("pageup", f"move(-{_PAGE_LINES})"),
    ("pagedown", f"move({_PAGE_LINES})"),
    ("home,g", f"move(-{_LAST_LINE})"),
    ("end,G", f"move({_LAST_LINE})"),
)


class Lines(Widget):
    """Lines of text; only those that changed are sent to the terminal again."""

    def __init__(self, *, id: str) -> None:  # noqa: A002 - Textual's name.
        super().__init__(id=id)
        self.lines: Sequence[Text] = ()

    def show(self, lines: Sequence[Text]) -> None:
        before, self.lines = self.lines, lines
        if len(lines) != len(before):
            self.refresh(layout=True)
            return
        for y, (old, new) in enumerate(zip(before, lines, strict=True)):
            if old != new or old.spans != new.spans:
                self.refresh(Region(0, y, self.size.width, 1))

    def get_content_height(self, *_: object) -> int:
        return len(self.lines)

    def render_line(self, y: int) -> Strip:
        style = self.rich_style
        if y >= len(self.lines):
            return Strip.blank(self.size.width, style)
        segments = self.lines[y].render(self.app.console)
        return Strip(segments).apply_style(style).adjust_cell_length(self.size.width, style)


class TopScreen(Screen[None]):
    """A screen whose last line shows a note, the trouble with the store, or the keys."""

    @property
    def top(self) -> TopApp:
        return cast("TopApp", self.app)

    def on_mount(self) -> None:
        self.top.say("")

    def on_resize(self) -> None:
        self.show()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Ignore keys that come before the screen is ready, except those that leave it."""
        if not self.is_mounted and action not in ("close", "quit"):
            return False
        return super().check_action(action, parameters)

    def key_effects(self) -> Sequence[tuple[str, str]]:
        """Return the keys that work here, and their effects."""
        return ()

    def reload(self) -> None:
        """Read the store again after an action, if the screen has to."""

    def show(self) -> None:
        if not self.is_mounted:
            return
        width = self.size.width
        if self.top.note:
            foot = Text(printable(self.top.note), "bold")
        elif self.top.trouble:
            foot = Text(printable(self.top.trouble), "bold red")
        else:
            foot = key_line(self.key_effects(), width)
        self.query_one("#foot", Lines).show([clipped(foot, width)])
