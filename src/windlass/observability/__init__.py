"""Logs, metrics and traces: how people see what Windlass does."""
