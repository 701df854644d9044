"""Windlass: background jobs on the database you already have."""

__version__ = "0.1.0.dev0"
