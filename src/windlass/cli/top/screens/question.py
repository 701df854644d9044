"""Owns the question before an action: only the key y is a yes, and a paste never is."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.screen import ModalScreen
from textual.widgets import Static

from windlass.cli.top.screens.base import keys


class QuestionScreen(ModalScreen[None]):
    """A question over another screen; `answer` is called before any later key is handled."""

    BINDINGS: ClassVar[list[BindingType]] = keys(("y,Y", "yes"))

    def __init__(self, question: str, answer: Callable[[bool], None]) -> None:
        super().__init__()
        self._question = question
        self._answer = answer

    def compose(self) -> ComposeResult:
        text = Text.assemble((self._question, "bold yellow"), (" y/n ", "bold reverse"))
        yield Static(text, id="question")

    def action_yes(self) -> None:
        self._close(yes=True)

    def on_key(self) -> None:
        self._close(yes=False)

    def on_paste(self) -> None:
        self._close(yes=False)

    def _close(self, *, yes: bool) -> None:
        if self.is_current:
            self.dismiss()
            self._answer(yes)
