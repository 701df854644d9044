"""What people need to test with Windlass: so far the laws that every store obeys."""

from windlass.testing.conformance import LAWS, Bench, Law, ManualClock, laws_for

__all__ = ["LAWS", "Bench", "Law", "ManualClock", "laws_for"]
