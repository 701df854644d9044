"""Enqueueing: from a draft to a job in the store, one by one or a fan-out at a time."""
