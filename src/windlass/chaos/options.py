"""Owns the options of a run of chaos, and the choice of the store that they mean."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from windlass.chaos.grounds.ground import Ground
from windlass.chaos.plan import FaultKind
from windlass.core.errors import ConfigError

STORES = ("sqlite", "postgres", "redis")
_SCHEMES = {
    "sqlite": "sqlite",
    "postgresql": "postgres",
    "postgres": "postgres",
    "redis": "redis",
    "valkey": "redis",
}


class Options(Struct, frozen=True, kw_only=True):
    """What a run of chaos is to do."""

    store: str = "sqlite"
    url: str = ""
    """A user's store; empty: one of chaos's own."""
    jobs: int = 2_000
    faults: int = 20
    seconds: float = 60.0
    seed: int = 1
    only: tuple[FaultKind, ...] = ()
    """The faults to choose from; empty: all that are possible."""
    lease: float = 3.0
    fleets: int = 2
    """Supervisors, of which each has two workers."""
    spared: int = 0
    """Further supervisors that no signal hits, so that their workers live as long as the run."""
    patience: float = 60.0
    """Seconds without any progress after which the drain is given up."""


def store_of(url: str) -> str:
    """Return the store that a URL names.

    Raises: ConfigError: chaos knows none for it.
    """
    scheme = url.partition("://")[0]
    if scheme not in _SCHEMES:
        raise ConfigError(
            f"--url must be a sqlite://, postgresql:// or redis:// URL, got "
            f"{scheme}://; chaos needs a store that several processes share"
        )
    return _SCHEMES[scheme]


def ground_of(options: Options, directory: Path) -> Ground:
    """Return the store to run on, which `prepare` makes ready.

    Raises: ConfigError: what it needs is not installed.
    """
    store = store_of(options.url) if options.url else options.store
    try:
        if store == "postgres":
            from windlass.chaos.grounds.postgres import PostgresGround

            return PostgresGround(directory, options.url, jobs=options.jobs)
        if store == "redis":
            from windlass.chaos.grounds.redis import RedisGround

            return RedisGround(directory, options.url)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"windlass chaos on {store} needs more packages ({error}): pip install "
            "'windlass[chaos]'"
        ) from error
    from windlass.chaos.grounds.sqlite import SqliteGround

    return SqliteGround(directory, options.url, jobs=options.jobs)


def kinds_for(options: Options, ground: Ground) -> list[FaultKind]:
    """Return the faults to choose from.

    Raises: ConfigError: a fault was asked for that is not possible here.
    """
    for kind in options.only:
        if kind in ground.impossible:
            raise ConfigError(f"--only {kind} is not possible here: {ground.impossible[kind]}")
    return list(options.only) or ground.faults
