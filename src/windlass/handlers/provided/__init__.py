"""Values that handlers share in a process, like pools: opened with a worker, injected by type."""

from windlass.handlers.provided.injection import Inject, Need, is_injected, needs_of
from windlass.handlers.provided.open_values import Provided
from windlass.handlers.provided.providers import Overrides, Provider, Providers, gives_app

__all__ = [
    "Inject",
    "Need",
    "Overrides",
    "Provided",
    "Provider",
    "Providers",
    "gives_app",
    "is_injected",
    "needs_of",
]
