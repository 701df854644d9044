"""The worker: claims, runs and settles jobs, keeps its lease, and rescues those of others."""

from typing import TYPE_CHECKING

from windlass.lazy_names import lazy_names

if TYPE_CHECKING:
    from windlass.worker.hooks import Hooks
    from windlass.worker.options import WorkerOptions
    from windlass.worker.worker import Worker
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "windlass.worker.hooks": ("Hooks",),
            "windlass.worker.options": ("WorkerOptions",),
            "windlass.worker.worker": ("Worker",),
        },
    )

__all__ = ["Hooks", "Worker", "WorkerOptions"]
