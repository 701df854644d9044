"""Values that handlers share in a process, like pools: opened with a worker, injected by type."""

from windlass.handlers.provided.injection import Inject, Need, needs_of
from windlass.handlers.provided.open_values import Provided
from windlass.handlers.provided.providers import Provider, Providers

__all__ = ["Inject", "Need", "Provided", "Provider", "Providers", "needs_of"]
