"""A module that raises when it is imported."""

from __future__ import annotations

raise LookupError("there is no such printer")
