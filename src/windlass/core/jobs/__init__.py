"""A job: its data, its states, and every way in which it may change."""
