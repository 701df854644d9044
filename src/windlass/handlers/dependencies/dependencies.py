"""Owns the dependencies of one handler, and its call with their values."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from windlass.handlers.context import Context
from windlass.handlers.dependencies.opening import Away, around, at_once, here, new_thread
from windlass.handlers.dependencies.plan import Plan, make_plan
from windlass.handlers.dependencies.reading import Asked
from windlass.handlers.provided import Overrides

Injected = Mapping[str, Any]
"""The parameters of a handler that are values of dependencies."""


class Dependencies:
    """What each run of a handler opens for itself. A batch has one of each for all its jobs."""

    def __init__(self, kind: str, asked: tuple[Asked, ...], *, has_context: bool = True) -> None:
        self._asker = f"kind {kind!r}"
        self._asked = asked
        self._has_context = has_context
        self._planned: tuple[Overrides, Plan] | None = None

    @property
    def parameters(self) -> frozenset[str]:
        """The names of the parameters."""
        return frozenset(each.parameter for each in self._asked)

    def plan(self, overrides: Overrides) -> Plan:
        """Return which dependencies are opened, and how.

        Raises: ConfigError: a run cannot have one of them; the error names it.
        """
        planned = self._planned
        if planned is None or planned[0] != overrides:
            plan = make_plan(self._asker, self._asked, overrides, has_context=self._has_context)
            planned = self._planned = (dict(overrides), plan)
        return planned[1]

    async def call(self, context: Context, handler: Callable[[Injected], Awaitable[Any]]) -> Any:
        """Call an `async def` handler with its dependencies."""
        plan = self.plan(context.provided.overrides())
        values: dict[int, Any] = {}
        numbers = range(len(plan.calls))
        return await around(
            lambda: handler(_injected(plan, values)), plan, numbers, values, context, new_thread
        )

    async def call_in_thread(
        self, context: Context, handler: Callable[[Injected], Any], elsewhere: Away
    ) -> Any:
        """Call a `def` handler elsewhere, with its dependencies.

        Those that are `async def` are opened here, in the event loop; the others in the handler's
        own thread, unless one of the first needs them.
        """
        plan = self.plan(context.provided.overrides())
        values: dict[int, Any] = {}
        early = sorted(plan.early)
        late = [number for number in range(len(plan.calls)) if number not in plan.early]

        async def call_handler() -> Any:
            return handler(_injected(plan, values))

        def in_its_thread() -> Any:
            return at_once(around(call_handler, plan, late, values, context, here))

        return await around(
            lambda: elsewhere(in_its_thread), plan, early, values, context, new_thread
        )


def _injected(plan: Plan, values: Mapping[int, Any]) -> Injected:
    return {name: values[number] for name, number in plan.parameters.items()}
