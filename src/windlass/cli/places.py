"""Owns what the command line demands of a store: that it can be seen from here, and is there."""

from __future__ import annotations

from windlass.core.errors import ConfigError
from windlass.store import Store


def refuse_private(store: Store) -> None:
    """Refuse a store whose jobs only the process that made them can see.

    Raises:
        ConfigError: this is one.
    """
    if not store.capabilities.shared:
        raise ConfigError(
            "memory:// keeps its jobs inside one process, so that no other can see them: run the "
            "worker in the program that enqueues, with app.run_worker(), or use a store that "
            "processes share, like sqlite:///windlass.db"
        )


async def require(store: Store) -> None:
    """Refuse a store that is not there yet: to look at one must not make one.

    Raises:
        ConfigError: it is not there.
    """
    if (await store.schema()).found is None:
        raise ConfigError(
            f"there is no store at {store.location} yet; `windlass migrate` creates it. Or is this "
            "not the right one? --url and --app say where else to look"
        )
