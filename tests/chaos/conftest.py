"""Owns what tests of chaos need of a database."""

from __future__ import annotations

from tests.support.postgres.fixtures import postgres_server, postgres_url

__all__ = ["postgres_server", "postgres_url"]
