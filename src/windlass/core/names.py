"""Owns which names queues, kinds and keys may have: short, printable, and the same everywhere."""

from __future__ import annotations

NAME_LIMIT = 200


def check_name(what: str, name: object) -> str:
    """Return a name that may be used for `what`.

    Raises:
        ValueError: it is empty, too long, or has characters that cannot be printed.
    """
    if not isinstance(name, str) or not name.strip():
        raise ValueError(f"a {what} needs a name, and {name!r} is none")
    if len(name) > NAME_LIMIT:
        raise ValueError(f"a {what} has at most {NAME_LIMIT} characters, and this has {len(name)}")
    if not name.isprintable():
        raise ValueError(f"a {what} has printable characters only, and {name!r} has others")
    return name
