"""Owns how a bulk operation is found by its id, or by the beginning of one."""

from __future__ import annotations

from collections.abc import Iterable

from starlette.exceptions import HTTPException

from windlass.core.jobs.bulk import BulkOperation

_MIN_DIGITS = 8


def found_operation(operations: Iterable[BulkOperation], given: str) -> BulkOperation:
    """Return the only operation whose id begins with what is given.

    Raises:
        HTTPException: there is none, or there are several.
    """
    digits = given.strip().lower().replace("-", "")
    is_long = len(digits) >= _MIN_DIGITS
    found = [each for each in operations if is_long and each.id.hex.startswith(digits)]
    if not found:
        raise HTTPException(404, "there is no such bulk operation; they are kept for 30 days")
    if len(found) > 1:
        raise HTTPException(409, "several bulk operations begin like this; give more of the id")
    return found[0]
