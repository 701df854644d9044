"""Owns the names of roles in the page on PostgreSQL: a server's databases share them, tests do not.

So each database has roles of its own, called after it.
"""

from __future__ import annotations

SHOWN = "shop_"


def prefix_of(url: str) -> str:
    """Return how the names of the roles begin that belong to a database."""
    return f"{url.rpartition('/')[2]}_"


def with_own_roles(text: str, url: str) -> str:
    """Return SQL of the page with the roles that belong to a database."""
    return text.replace(SHOWN, prefix_of(url))
