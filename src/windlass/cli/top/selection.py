"""Owns the selection: which panel and rows are selected, and which rows a filter leaves."""

from __future__ import annotations

from collections.abc import Sequence

from windlass.app.snapshot import Snapshot
from windlass.cli.top.content.panels import PANELS, QUEUES, Row

Rows = Sequence[Sequence[Row]]


class Selection:
    """A panel, and a row in each; rows are identified by keys, since others come and go."""

    def __init__(self) -> None:
        self.panel = QUEUES
        self.filter = ""
        self._keys = [""] * len(PANELS)

    def rows(self, snapshot: Snapshot | None) -> Rows:
        """Return the rows of all panels that the filter leaves."""
        if snapshot is None:
            return [[] for _ in PANELS]
        text = self.filter.casefold()
        return [
            [row for row in panel.rows(snapshot) if text in row.searchable.casefold()]
            for panel in PANELS
        ]

    def position(self, rows: Rows) -> int:
        """Return the index of the selected row: the first, if the selected one is gone."""
        keys = [row.key for row in rows[self.panel]]
        key = self._keys[self.panel]
        return keys.index(key) if key in keys else 0

    def take(self, snapshot: Snapshot | None) -> Row | None:
        """Return the selected row, which stays selected whichever row comes first later."""
        return self.move(snapshot, 0)

    def move(self, snapshot: Snapshot | None, step: int) -> Row | None:
        """Select the row that is `step` rows further, or the last one there, and return it."""
        rows = self.rows(snapshot)
        panel = rows[self.panel]
        if not panel:
            return None
        row = panel[min(max(self.position(rows) + step, 0), len(panel) - 1)]
        self._keys[self.panel] = row.key
        return row
