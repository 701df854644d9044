"""Owns the law: a named check that a store passes or fails, and the stores that it binds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Literal, TypeAlias, overload

from windlass.store.protocol import Capabilities
from windlass.testing.conformance.bench import Bench

Need: TypeAlias = Literal["shared", "durable", "bounded"]
Check: TypeAlias = Callable[[Bench], Awaitable[None]]
OpenBench: TypeAlias = Callable[[], AbstractAsyncContextManager[Bench]]

TIMEOUT_SECONDS = 60.0
"""After this time a law counts as broken: a store that hangs breaks it too."""


class NotApplicable(Exception):
    """A law was checked on a store that lacks the capability it is about."""

    def __init__(self, law: Law) -> None:
        super().__init__(law.name, law.needs)
        self.law = law

    def __str__(self) -> str:
        return (
            f"{self.law.name} holds for stores that are {self.law.needs}, and this one is not; "
            "take the laws from laws_for(store.capabilities)"
        )


@dataclass(frozen=True, kw_only=True)
class Law:
    """A promise of every store, or of every store with the capability that the law `needs`."""

    name: str
    says: str
    needs: Need | None
    run: Check

    def __str__(self) -> str:
        return self.name

    def applies_to(self, capabilities: Capabilities) -> bool:
        """Return whether the law binds a store with these capabilities."""
        return self.needs is None or bool(getattr(capabilities, self.needs))

    async def check(self, open_bench: OpenBench) -> None:
        """Open a bench on a fresh store and check the law there.

        Raises:
            AssertionError: the store breaks the law.
            TimeoutError: the store hangs.
            NotApplicable: the law is about a capability that the store does not declare.
        """
        if not __debug__:
            raise RuntimeError("laws are asserts: run them without python -O")
        async with asyncio.timeout(TIMEOUT_SECONDS), open_bench() as bench:
            if not self.applies_to(bench.store.capabilities):
                raise NotApplicable(self)
            await bench.store.open()
            await self.run(bench)


@overload
def law(check: Check, /) -> Law: ...
@overload
def law(*, needs: Need) -> Callable[[Check], Law]: ...
def law(
    check: Check | None = None, /, *, needs: Need | None = None
) -> Law | Callable[[Check], Law]:
    """Make a law of a check, with its name and docstring."""

    def make(check: Check) -> Law:
        name: str = getattr(check, "__name__", "")
        return Law(name=name, says=check.__doc__ or "", needs=needs, run=check)

    return make if check is None else make(check)
