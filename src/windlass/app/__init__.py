"""The composition root: registers handlers, makes jobs of calls, and wires up workers."""

from windlass.app.app import Windlass
from windlass.app.control import Control
from windlass.app.fan_out import FanOut
from windlass.app.handle import Handle
from windlass.app.kind import Kind
from windlass.app.producer import Draft, Handler, Producer

__all__ = ["Control", "Draft", "FanOut", "Handle", "Handler", "Kind", "Producer", "Windlass"]
