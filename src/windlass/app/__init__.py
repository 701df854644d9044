"""The composition root: registers handlers, makes jobs of calls, and wires up workers."""

from typing import TYPE_CHECKING

from windlass.lazy_names import lazy_names

if TYPE_CHECKING:
    from windlass.app.app import Windlass
    from windlass.app.control.control import Control
    from windlass.app.enqueueing.fan_out import FanOut
    from windlass.app.enqueueing.uncertain import EnqueueUncertain
    from windlass.app.handle import Handle
    from windlass.app.jobs.jobs import Jobs
    from windlass.app.producer import Draft, Handler, Producer
    from windlass.app.registration.kind import Kind
    from windlass.app.workflows.flow import After, Flow, Node
    from windlass.app.workflows.pipeline import PIPELINE, Pipeline, Stage
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "windlass.app.app": ("Windlass",),
            "windlass.app.control.control": ("Control",),
            "windlass.app.enqueueing.fan_out": ("FanOut",),
            "windlass.app.enqueueing.uncertain": ("EnqueueUncertain",),
            "windlass.app.handle": ("Handle",),
            "windlass.app.jobs.jobs": ("Jobs",),
            "windlass.app.producer": ("Draft", "Handler", "Producer"),
            "windlass.app.registration.kind": ("Kind",),
            "windlass.app.workflows.flow": ("After", "Flow", "Node"),
            "windlass.app.workflows.pipeline": ("PIPELINE", "Pipeline", "Stage"),
        },
    )

__all__ = [
    "PIPELINE",
    "After",
    "Control",
    "Draft",
    "EnqueueUncertain",
    "FanOut",
    "Flow",
    "Handle",
    "Handler",
    "Jobs",
    "Kind",
    "Node",
    "Pipeline",
    "Producer",
    "Stage",
    "Windlass",
]
