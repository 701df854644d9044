"""Connections to PostgreSQL, each with one purpose."""
