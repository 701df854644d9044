"""The report of a run: as facts, as text, and as a page."""
