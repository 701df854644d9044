"""Owns what a person chooses for a new project: its name, its store, what it is used with."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from enum import StrEnum

from windlass.version import __version__

FEATURES = ("fastapi", "django", "web")
_TARGETS = {"fastapi": "api", "django": "site", "web": "page"}
"""What `make dev` runs for each, besides a worker."""
_NATIVE_DJANGO_TASKS = (3, 12)
"""The first Python on which Django 6.0 runs, which has a tasks framework of its own."""


class StoreChoice(StrEnum):
    """Where the jobs of a new project are kept."""

    SQLITE = "sqlite"
    POSTGRES = "postgres"
    REDIS = "redis"


@dataclass(frozen=True, kw_only=True)
class Choices:
    """What decides about the files of a project."""

    package: str
    store: StoreChoice = StoreChoice.SQLITE
    features: frozenset[str] = frozenset()
    python: tuple[int, int] = sys.version_info[:2]
    """The Python that is to run the project; Django 6 needs a newer one than Windlass."""
    origin: str = ""
    """The address from which Windlass was installed; empty: it is found by its name."""

    @property
    def words(self) -> frozenset[str]:
        """The words that conditions in templates may name."""
        tasks = "django6" if self.python >= _NATIVE_DJANGO_TASKS else "django5"
        more = {tasks} if "django" in self.features else set()
        return self.features | more | {self.store.value} | ({"direct"} if self.origin else set())

    @property
    def values(self) -> dict[str, str]:
        """The values that templates may insert."""
        return {
            "package": self.package,
            "path": self.package.replace(".", "/"),
            "title": self.package.replace("_", " ").capitalize(),
            "distribution": self.package.replace("_", "-"),
            "windlass": self.requirement,
            "python": "3.12" if "django6" in self.words else "3.11",
            "targets": "".join(f" {_TARGETS[each]}" for each in FEATURES if each in self.features),
        }

    @property
    def requirement(self) -> str:
        """Windlass as a dependency: its extras, and this very release, from where it is from.

        Before 1.0 each release may change what the project uses, so that an upgrade is a decision.
        """
        store = set() if self.store is StoreChoice.SQLITE else {self.store.value}
        extras = ",".join(sorted(self.features | store))
        name = f"windlass[{extras}]" if extras else "windlass"
        return f"{name} @ {self.origin}" if self.origin else f"{name}=={__version__}"


def read_features(text: str) -> frozenset[str]:
    """Read `fastapi,web`.

    Raises:
        ValueError: one of them is unknown, or they exclude each other.
    """
    named = {each.strip() for each in text.split(",")} - {""}
    if unknown := sorted(named - set(FEATURES)):
        raise ValueError(
            f"--with must be some of {','.join(FEATURES)}, got {', '.join(map(repr, unknown))}; "
            "write it like --with fastapi,web"
        )
    if {"fastapi", "django"} <= named:
        raise ValueError(
            "--with must name one framework, got fastapi and django; write two projects, or add "
            "the other one by hand"
        )
    return frozenset(named)
