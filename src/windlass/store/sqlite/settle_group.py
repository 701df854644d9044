"""Owns how outcomes are made ready to be written, before their writer has the write lock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import UUID

from windlass.core.jobs.settle import Transition
from windlass.core.jobs.states import State
from windlass.store.json_columns import as_json
from windlass.store.sqlite.queries import sql

_FEWEST_ALIKE = 8
"""Fewer successes with the same result are written with the other ones."""


class Completion(NamedTuple):
    """A statement that records successes, and its values but for the time."""

    statement: str
    values: dict[str, Any]


class SettleGroup(NamedTuple):
    """Transitions in their order, and the statements that record the plain successes of them."""

    moves: Sequence[Transition]
    is_plain: Sequence[bool]
    completions: Sequence[Completion]
    """None of them if every transition has to be recorded by itself."""

    @classmethod
    def of(cls, moves: Sequence[Transition]) -> SettleGroup:
        is_plain = [_is_plain_success(move) for move in moves]
        # In a group that settles a job twice, the first settle counts; so the order matters.
        if sum(is_plain) < 2 or len({move.id for move in moves}) < len(moves):
            return cls(moves, is_plain, ())
        successes = [move for move, plain in zip(moves, is_plain, strict=True) if plain]
        return cls(moves, is_plain, _completions(successes))


def _is_plain_success(move: Transition) -> bool:
    return (
        move.state is State.COMPLETED
        and move.attempt is None
        and not move.failures
        and not move.crashes
        and not move.steps
        and move.saga is None
    )


def _completions(successes: Sequence[Transition]) -> list[Completion]:
    """Return one statement for each result that many share, and one for all the others."""
    alike: dict[tuple[int, bytes | None, str | None], list[UUID]] = {}
    for move in successes:
        alike.setdefault((move.token, move.result, move.reason), []).append(move.id)
    completions: list[Completion] = []
    others = []
    for (token, result, reason), ids in alike.items():
        text = None if result is None else result.decode()
        if len(ids) < _FEWEST_ALIKE:
            others += [(id_, token, text, reason) for id_ in ids]
            continue
        values = {"token": token, "result": text, "reason": reason, "ids": as_json(ids)}
        completions.append(Completion(sql["complete_alike"], values))
    if others:
        completions.append(Completion(sql["complete_jobs"], {"successes": as_json(others)}))
    return completions
