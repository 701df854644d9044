"""Gives every test here its bed."""

from tests.app.bed import bed
from tests.postgres.fixtures import postgres_scratches, postgres_server

__all__ = ["bed", "postgres_scratches", "postgres_server"]
