"""The worker: claims, runs and settles jobs, keeps its lease, and looks after those of others."""

from windlass.runtime.hooks import Hooks
from windlass.runtime.options import WorkerOptions
from windlass.runtime.worker import Worker

__all__ = ["Hooks", "Worker", "WorkerOptions"]
