"""Owns the handlers as workers of the next release run them."""

from __future__ import annotations

from tests.support.releases import become_next
from tests.torture.programs.handlers import app

__all__ = ["app"]

become_next()
