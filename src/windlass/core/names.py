"""Owns which names queues, kinds and keys may have: short, printable, and the same everywhere."""

from __future__ import annotations

NAME_LIMIT = 200


def check_name(what: str, name: object) -> str:
    """Return a name that may be used for `what`.

    Raises:
        ValueError: it is empty, too long, or has characters that cannot be printed.
    """
    one = f"an {what}" if what[0] in "aeio" else f"a {what}"
    if not isinstance(name, str) or not name.strip():
        raise ValueError(f"{one} needs a name, and {name!r} is none")
    if len(name) > NAME_LIMIT:
        raise ValueError(f"{one} has at most {NAME_LIMIT} characters, and this has {len(name)}")
    if not name.isprintable():
        raise ValueError(f"{one} has printable characters only, and {name!r} has others")
    return name
