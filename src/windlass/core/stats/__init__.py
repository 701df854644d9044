"""Figures for people: queues, kinds, errors, capacity."""
