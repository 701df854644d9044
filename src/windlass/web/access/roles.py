"""Owns who may do what on the page: roles, and the access of one request."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from enum import StrEnum

from starlette.requests import Request
from starlette.responses import Response

from windlass.core.errors import ConfigError
from windlass.core.search.parser import MAX_VALUES


class Role(StrEnum):
    """What a person may do; each role may do what those before it may."""

    VIEWER = "viewer"
    """Look at everything."""
    OPERATOR = "operator"
    """Retry, redrive and cancel jobs; pause and resume queues, kinds, keys and schedules; run a
    schedule now.
    """
    ADMIN = "admin"
    """Purge jobs, change payloads, limits and breakers, enqueue jobs, remove schedules."""

    def includes(self, other: Role) -> bool:
        """Return whether this role may do what the other one may."""
        roles = list(Role)
        return roles.index(self) >= roles.index(other)


@dataclass(frozen=True, kw_only=True)
class Access:
    """The access of one person: the name that is recorded, and what the person may do."""

    who: str
    role: Role = Role.VIEWER
    payloads: bool = True
    """Whether payloads, results, headers and the results of steps are shown."""
    queues: tuple[str, ...] | None = None
    """The queues whose jobs the person sees and acts on; None: all."""

    def __post_init__(self) -> None:
        if not self.who.strip():
            raise ConfigError("who must not be empty: it names the person whose action is recorded")
        object.__setattr__(self, "role", Role(self.role))
        if self.queues is not None:
            object.__setattr__(self, "queues", _checked_queues(self.queues))

    def sees(self, queue: str) -> bool:
        """Return whether the person sees the jobs of a queue."""
        return self.queues is None or queue in self.queues

    def may(self, role: Role) -> bool:
        """Return whether the person may do what takes this role."""
        return self.role.includes(role)


def _checked_queues(queues: Collection[str]) -> tuple[str, ...]:
    if isinstance(queues, str) or not all(queues):
        raise ConfigError(
            f"queues must be names, or None for all queues, got {queues!r}; write them like "
            'queues=("mail", "reports")'
        )
    names = tuple(dict.fromkeys(queues))
    if len(names) > MAX_VALUES:
        raise ConfigError(
            f"queues must have at most {MAX_VALUES} names, got {len(names)}; None means all queues"
        )
    return names


Answer = Access | Response | None
AccessFunction = Callable[[Request], Answer | Awaitable[Answer]]
"""Returns the access of a request by the program's own login; None refuses it, and a response, such
as a redirect to the login, is sent instead of the page.
"""


async def access_by(function: AccessFunction, request: Request) -> Answer:
    """Ask a program's own function for the access of a request.

    Raises:
        TypeError: it returned something else.
    """
    found = function(request)
    if inspect.isawaitable(found):
        found = await found
    if found is not None and not isinstance(found, Access | Response):
        raise TypeError(f"access= must return an Access, a Response or None, got {found!r}")
    return found
