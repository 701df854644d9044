"""The worker: claims, runs and settles jobs, keeps its lease, and looks after those of others."""

from windlass.runtime.worker import Hooks, Worker, WorkerOptions

__all__ = ["Hooks", "Worker", "WorkerOptions"]
