"""Owns the search language: how people write which jobs they mean, and which jobs match."""
