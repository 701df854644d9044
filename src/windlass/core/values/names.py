"""Owns which names queues, kinds and keys may have, and which one a misspelt name means."""

from __future__ import annotations

from collections.abc import Iterable

NAME_LIMIT = 200
_MIN_SIMILARITY = 0.65
"""The least similarity of a suggestion; at 0.6, `amount` would suggest `timeout`."""
RESERVED = "windlass."
"""The prefix of Windlass's own kinds, like those of flows and pipelines."""


def is_builtin(kind: str) -> bool:
    """Return whether a kind is one that every app has, and nobody registers."""
    return kind.startswith(RESERVED)


def check_name(what: str, name: object) -> str:
    """Return a name that may be used for `what`."""
    one = f"an {what}" if what[0] in "aeio" else f"a {what}"
    if not isinstance(name, str) or not name.strip():
        raise ValueError(f"{one} must have a name, got {name!r}")
    if len(name) > NAME_LIMIT:
        raise ValueError(f"{one} must have at most {NAME_LIMIT} characters, got {len(name)}")
    if not name.isprintable():
        raise ValueError(f"{one} must have only printable characters, got {name!r}")
    return name


def check_own_name(what: str, name: object) -> str:
    """Return a name that a program may give to `what`."""
    checked = check_name(what, name)
    is_ours = checked == RESERVED.removesuffix(".")
    if is_ours or checked.startswith(RESERVED):
        condition = f"be {checked!r}" if is_ours else f"begin with {RESERVED!r}"
        other = "my." + checked.removeprefix(RESERVED)
        raise ValueError(
            f"the name of a {what} must not {condition}, got {checked!r}; such names are reserved "
            f"for Windlass; choose another, like {other!r}"
        )
    return checked


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that a misspelt one may mean; None if none is near enough."""
    # Imported here: only a mistake needs it, and it is slow to load.
    from difflib import get_close_matches

    names = sorted(known)
    longer = [each for each in names if each.startswith(f"{name}_")]
    near = longer or get_close_matches(name, names, n=1, cutoff=_MIN_SIMILARITY)
    return near[0] if near else None
