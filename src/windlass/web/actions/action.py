"""Owns what an action is: who may do it, what its confirmation says, and what it does."""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

from msgspec import Struct

from windlass.app.app import Windlass
from windlass.app.control.control import Control
from windlass.app.schedules import Schedules
from windlass.core.documents import Facts
from windlass.web.access.roles import Access, Role
from windlass.web.payload_form.fields import Field

F = TypeVar("F", bound=Struct)


@dataclass(frozen=True, kw_only=True)
class Scene:
    """The app on which an action is performed."""

    app: Windlass
    access: Access
    why: str = ""
    """The reason that was given."""
    as_json: bool = False
    """Whether the person edits a payload as JSON, although it has a form."""

    @property
    def control(self) -> Control:
        """The operations, on behalf of the person who asks."""
        return self.app.control.acting_as(self.access.who, via="web", reason=self.why)

    @property
    def schedules(self) -> Schedules:
        """The schedules, on behalf of the person who asks."""
        return self.app.schedules.acting_as(self.access.who, via="web", reason=self.why)

    def reason(self, given: str, done: str) -> str:
        """Return the reason that is kept with a job: the given one, or what was done by whom."""
        return given or f"{done} by {self.access.who}"

    def command(self, *words: str) -> str:
        """Return the command line that does the same."""
        target = ("--app", self.app.home) if self.app.home else ()
        return shlex.join(("windlass", *words, *target))


@dataclass(frozen=True, kw_only=True)
class Input:
    """A field of a confirmation."""

    name: str
    label: str
    kind: Literal["text", "number", "textarea"] = "text"
    value: str = ""
    hint: str = ""
    required: bool = False


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What an action would do, before anything changes."""

    title: str
    effect: str
    command: str
    back: str
    back_query: Mapping[str, str] = field(default_factory=dict)
    jobs: int | None = None
    """How many jobs it affects; None: it is not about jobs."""
    at_least: bool = False
    """Whether there may be more jobs than were counted."""
    inputs: tuple[Input, ...] = ()
    fields: tuple[Field, ...] = ()
    """The fields of the payload, if it has a form."""
    has_form: bool = False
    """Whether the payload has a form, also where it is edited as JSON."""
    danger: bool = False
    """Whether it cannot be undone."""


@dataclass(frozen=True, kw_only=True)
class Done:
    """What an action has done, and where that is seen."""

    message: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    facts: Facts = field(default_factory=dict)
    """The document of the API."""


@dataclass(frozen=True, kw_only=True)
class Action(Generic[F]):
    """An action: `plan` looks and changes nothing, `perform` acts."""

    name: str
    label: str
    role: Role
    form: type[F]
    plan: Callable[[Scene, F], Awaitable[Plan]]
    perform: Callable[[Scene, F], Awaitable[Done]]


AnyAction = Action[Any]
REASON = Input(name="reason", label="Reason", hint="Recorded with your name.")
