"""Owns what a claim may still take while it is planned: slots, and the allowances of gates."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from windlass.core.claims.room import FREE, MOST_BUDGETS, SLOTS, Pool, Room

_OF_THE_WORKER = frozenset({SLOTS, FREE, Pool.THREADS.value, Pool.ISOLATED.value})


class Allowance(NamedTuple):
    """How many jobs a limit or a breaker lets start at present.

    The allowance holds for all lanes that name it together. A `shared` one, of lanes of several
    keys, is drawn down by the claim itself; any other is divided among the asks beforehand.
    """

    name: str
    left: int
    amount: int = 1
    """Tokens that one job uses."""
    shared: bool = True


class Allotment:
    """The slots, bytes and tokens that a claim has left while its asks are planned."""

    def __init__(self, room: Room, at_most: int) -> None:
        self.budgets = {
            SLOTS: min(room.slots, at_most),
            Pool.THREADS.value: room.threads,
            Pool.ISOLATED.value: room.isolated_processes,
        }
        if room.quick:
            self.budgets[FREE] = min(max(room.free, 0), at_most)
        self.left = dict(self.budgets)
        self.scarce = (room.free if room.quick else room.slots) <= at_most
        """Whether there is no slot left after this claim; else another follows at once."""
        self._divided: dict[str, int] = {}
        self._given: dict[str, int] = {}

    def draw(
        self,
        draws: tuple[str, ...],
        allowances: Iterable[Allowance],
        *,
        most: int | None = None,
        again: bool = False,
    ) -> tuple[int, tuple[str, ...]]:
        """Return how many jobs of a lane may be asked for, and the budgets that they draw on.

        A lane that is asked `again` for more jobs is already counted as holding one.
        """
        divided = []
        for each in allowances:
            if not each.shared or each.amount > 1:
                divided.append(each)
                continue
            if each.left > 0 and each.name not in self.budgets and self._has_room:
                self.budgets[each.name] = self.left[each.name] = each.left
            draws = (*draws, each.name)
        count = min([self._reach(name, again=again) for name in draws])
        count = count if most is None else min(count, most)
        for each in divided:
            count = min(count, self._divided.setdefault(each.name, each.left) // each.amount)
        if count <= 0:
            return 0, draws
        for each in divided:
            self._divided[each.name] -= count * each.amount
            self._given[each.name] = self._given.get(each.name, 0) + count * each.amount
        if not again:
            for name in draws:
                self.left[name] -= 1
        return count, draws

    def _reach(self, name: str, *, again: bool) -> int:
        return self.budgets[name] if self.left.get(name, 0) > 0 or again else 0

    def reserves(self) -> dict[str, int]:
        slots = self.budgets[SLOTS]
        shared = {
            name: min(budget, slots)
            for name, budget in self.budgets.items()
            if name not in _OF_THE_WORKER and self.left[name] < budget
        }
        return self._given | shared

    @property
    def _has_room(self) -> bool:
        return len(self.budgets) < MOST_BUDGETS
