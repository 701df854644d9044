"""Owns what the tests of `windlass top` share: notes that stay, however slow the machine is."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def notes_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep a note on the screen until the next key."""
    monkeypatch.setattr("windlass.cli.top.app._NOTE_SECONDS", 600.0)
