"""The steps of a run: done once, recorded, and undone if the job fails for good."""

from windlass.steps.course import Course
from windlass.steps.step import Call, Means, Step, current_step

__all__ = ["Call", "Course", "Means", "Step", "current_step"]
