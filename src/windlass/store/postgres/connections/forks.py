"""Owns what a forked child does with the stores of its parent: each of them starts anew."""

from __future__ import annotations

import os
import weakref
from typing import Protocol

_inherited: list[object] = []


class Forked(Protocol):
    """A store that has connections, which belong to the process that opened them."""

    def after_fork_in_child(self) -> object:
        """Start anew, and return the connections of the parent process."""


_stores: weakref.WeakSet[Forked] = weakref.WeakSet()


def start_anew_in_children(store: Forked) -> None:
    """Let a store start anew in every process that is forked from this one."""
    _stores.add(store)


def _after_fork_in_child() -> None:
    # Kept, so that the child's garbage collection closes nothing of the parent process.
    _inherited.extend(store.after_fork_in_child() for store in list(_stores))


os.register_at_fork(after_in_child=_after_fork_in_child)
