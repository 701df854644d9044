"""Owns what all parts of `app.control` have in common: their app, and the operator who acts."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from windlass.app.control.audit_writer import Acting

if TYPE_CHECKING:
    from windlass.app.app import Windlass

T = TypeVar("T")


class ControlPart(Acting):
    """A part of `app.control`: each method blocks, and its twin whose name begins with `a` is
    awaited.
    """

    _written: ClassVar[str] = "app.control"

    def __init__(self, app: Windlass) -> None:
        self._app = app

    def _block_on(self, work: Coroutine[Any, Any, T]) -> T:
        return self._app.portal.call(work)
