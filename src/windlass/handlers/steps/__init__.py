"""The steps of a run: done once, recorded, and undone if the job fails for good."""

from windlass.handlers.steps.step import Call, Step, StepEnvironment, current_step
from windlass.handlers.steps.step_runner import StepRunner

__all__ = ["Call", "Step", "StepEnvironment", "StepRunner", "current_step"]
