"""Flows and pipelines as users write and see them."""
