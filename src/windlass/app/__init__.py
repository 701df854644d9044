"""The composition root: registers handlers, makes jobs of calls, and wires up workers."""

from windlass.app.app import Windlass
from windlass.app.control import Control
from windlass.app.fan_out import FanOut
from windlass.app.flow import After, Flow, Node
from windlass.app.handle import Handle
from windlass.app.kind import Kind
from windlass.app.pipeline import PIPELINE, Pipeline, Stage
from windlass.app.producer import Draft, Handler, Producer

__all__ = [
    "PIPELINE",
    "After",
    "Control",
    "Draft",
    "FanOut",
    "Flow",
    "Handle",
    "Handler",
    "Kind",
    "Node",
    "Pipeline",
    "Producer",
    "Stage",
    "Windlass",
]
