"""Gives every test here its bed."""

from tests.app.bed import bed

__all__ = ["bed"]
