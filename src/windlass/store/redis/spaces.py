"""Owns the spaces of a Redis: a whole store each, with a hash tag, and so a slot, of its own."""

from __future__ import annotations

from windlass.core.jobs.queries import Finding
from windlass.core.jobs.spaces import DEFAULT_SPACE, Space
from windlass.store.redis.store import RedisStore
from windlass.store.spaces import SpacedStore


class RedisSpaces(SpacedStore):
    """Keeps the jobs of each space under keys of its own; in a cluster, on any of its nodes."""

    def __init__(
        self, url: str, spaces: tuple[Space, ...], *, chosen: str | None, kept: int = 100_000
    ) -> None:
        stores = {DEFAULT_SPACE: RedisStore(url, kept=kept)}
        stores |= {space.name: RedisStore(url, kept=kept, space=space.name) for space in spaces}
        super().__init__(stores, spaces, chosen=chosen)
        self._stores = stores

    async def findings(self) -> list[Finding]:
        return [*await super().findings(), *await self._shared_nodes()]

    async def _shared_nodes(self) -> list[Finding]:
        """Return a problem for each space that shares a node while another node has no space."""
        places = {name: await store.place() for name, store in self._stores.items()}
        known = {name: place for name, place in places.items() if place is not None}
        free = {node for _, _, masters in known.values() for node in masters}
        free -= {owner for _, owner, _ in known.values()}
        found: list[Finding] = []
        seen: dict[bytes, str] = {}
        for name, (slot, owner, _) in known.items():
            if owner in seen and free:
                to = free.pop().decode()
                problem = f"spaces {seen[owner]} and {name} are on the same node of the cluster"
                remedy = f"move slot {slot}, with all keys of space {name}, to node {to}"
                found.append(Finding(name="shared_node", problem=problem, remedy=remedy))
            seen.setdefault(owner, name)
        return found
