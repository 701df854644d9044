"""Owns the upkeep by workers: promotion, rescue, recall and pruning, in pieces."""
