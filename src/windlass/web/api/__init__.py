"""The JSON API under /api/v1: the documents of `--json`, and the actions of the page."""
