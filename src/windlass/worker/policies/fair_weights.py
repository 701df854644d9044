"""Owns the rotation of a worker: the weights of its fair kinds, even if a weight function fails."""

from __future__ import annotations

from collections.abc import Callable

from windlass.core.errors import ConfigError
from windlass.core.policies.fairness import Rotation, Weights, weight_of
from windlass.handlers.registry import Registry
from windlass.observability.logs import get_logger

log = get_logger("windlass.fairness")


def rotation_for(registry: Registry) -> Rotation | None:
    """Return the rotation of the kinds whose keys take turns, or None if no kind is fair."""
    weights = {
        kind: _weigher(kind, each.weights)
        for kind in registry
        if (each := registry[kind]).weights is not None
    }
    return Rotation(weights) if weights else None


def _weigher(kind: str, weights: Weights | None) -> Callable[[str], float]:
    """Return the weight function of a kind; a key whose weight cannot be computed has 1.

    The failure is logged once. The function decides only the order, so jobs must not wait for it.
    """
    is_logged = False

    def weigh(key: str) -> float:
        nonlocal is_logged
        try:
            return weight_of(kind, weights or {}, key)
        except ConfigError as error:
            if not is_logged:
                log.warning("weight.unknown", kind=kind, key=key, error=str(error), taken=1)
            is_logged = True
            return 1.0

    return weigh
