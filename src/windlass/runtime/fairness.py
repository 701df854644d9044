"""Owns the rotation of a worker: the weights of its fair kinds, whatever their functions do."""

from __future__ import annotations

from collections.abc import Callable

from windlass.core.errors import ConfigError
from windlass.core.fairness import Rotation, Weights, weight_of
from windlass.observe.logs import get_logger
from windlass.registry import Registry

log = get_logger("windlass.fairness")


def rotation_for(registry: Registry) -> Rotation | None:
    """Return the rotation of the kinds whose keys take turns; None if there are none."""
    weights = {
        kind: _weigher(kind, each.weights)
        for kind in registry
        if (each := registry[kind]).weights is not None
    }
    return Rotation(weights) if weights else None


def _weigher(kind: str, weights: Weights | None) -> Callable[[str], float]:
    """Return how the keys of a kind are weighed: one whose weight cannot be told has 1.

    That is logged once. Jobs must not wait because a function fails that only says in which order.
    """
    told = False

    def weigh(key: str) -> float:
        nonlocal told
        try:
            return weight_of(kind, weights or {}, key)
        except ConfigError as error:
            if not told:
                log.warning("weight.unknown", kind=kind, key=key, error=str(error), taken=1)
            told = True
            return 1.0

    return weigh
