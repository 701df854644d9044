"""What handlers share in a process (pools, clients): opened with a worker, handed out by type."""

from windlass.resources.asking import Inject, Need, needs_of
from windlass.resources.opened import Resources
from windlass.resources.providers import Provider, Providers

__all__ = ["Inject", "Need", "Provider", "Providers", "Resources", "needs_of"]
