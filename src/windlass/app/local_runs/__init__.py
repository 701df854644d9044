"""Runs of stored jobs in the process of a person who looks for their cause."""
