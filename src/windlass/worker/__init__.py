"""The worker: claims, runs and settles jobs, keeps its lease, and rescues those of others."""

from windlass.worker.hooks import Hooks
from windlass.worker.options import WorkerOptions
from windlass.worker.worker import Worker

__all__ = ["Hooks", "Worker", "WorkerOptions"]
