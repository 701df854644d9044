"""The composition root: registers handlers, makes jobs of calls, and wires up workers."""

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
