"""Testing with Windlass: time travel for apps, and the laws for stores."""

from windlass.testing.conformance import LAWS, Bench, Law, ManualClock, laws_for
from windlass.testing.travel import Travel, travel, travel_fixture

__all__ = [
    "LAWS",
    "Bench",
    "Law",
    "ManualClock",
    "Travel",
    "laws_for",
    "travel",
    "travel_fixture",
]
