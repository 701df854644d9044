"""Writes outcomes, checkpoints and chunks of streams to the store, in groups."""
