"""Owns the sheets that are the same for every row: help and alarms."""

from __future__ import annotations

from rich.console import Group

from windlass.cli.top.content.sheets import HELP, alarm_lines
from windlass.cli.top.screens.sheet import Sheet


class HelpScreen(Sheet):
    """The keys and the words."""

    def body(self) -> Group:
        return Group(*HELP)


class AlarmsScreen(Sheet):
    """All alarms."""

    max_alarms = 0

    def body(self) -> Group:
        return Group(*(() if self.top.snapshot is None else alarm_lines(self.top.snapshot)))
