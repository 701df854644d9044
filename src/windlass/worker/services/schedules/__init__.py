"""The ticking of schedules, and the clock that they tick by."""
