"""Gives tests an environment with the wheel in it, and a directory of a user's who begins there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from ctypes.util import find_library
from fcntl import LOCK_EX, flock
from pathlib import Path

import pytest

from tests.support.postgres.fixtures import postgres_server, postgres_url, session_directory
from tests.support.redis_fixtures import own_redis
from tests.wheel.environments import (
    Environment,
    Wanted,
    all_wanted,
    build_wheel,
    install,
    interpreter,
)

__all__ = ["own_redis", "postgres_server", "postgres_url"]


@pytest.fixture(scope="session")
def wheel(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel of these sources, once for all of xdist's processes."""
    shared = session_directory(request.config, tmp_path_factory)
    with locked(shared / "wheel"):
        return next(shared.glob("*.whl"), None) or build_wheel(shared)


@pytest.fixture(scope="session", params=all_wanted(), ids=str)
def environment(request: pytest.FixtureRequest, wheel: Path) -> Environment:
    """Install the wheel, with one extra or none."""
    wanted: Wanted = request.param
    if wanted.beside == "psycopg" and find_library("pq") is None:
        pytest.skip("there is no libpq here, which psycopg in pure Python needs")
    return installed(wanted, wheel)


def installed(wanted: Wanted, wheel: Path) -> Environment:
    """Return the environment beside the wheel; once for all of xdist's processes it is made."""
    if interpreter(wanted.python) is None:
        pytest.skip(f"there is no Python {wanted.python} here, on the path or among pyenv's")
    without = Wanted(wanted.python)
    bare = None if wanted == without else installed(without, wheel).bin.parent
    made, stamp = wheel.parent / str(wanted), wheel.parent / f"{wanted}.installed"
    with locked(made):
        if not stamp.exists():
            install(wanted, wheel, made, bare=bare)
            stamp.touch()
    return Environment(wanted, made / "bin")


@contextmanager
def locked(what: Path) -> Iterator[None]:
    """Let one process at a time make something."""
    with what.with_name(f"{what.name}.lock").open("w") as lock:
        flock(lock, LOCK_EX)
        yield


@pytest.fixture
def variables(environment: Environment, request: pytest.FixtureRequest) -> dict[str, str]:
    """Return what a user sets: where the jobs are if that is a server, and else nothing."""
    if not environment.has_psycopg:
        return {}
    return {"WINDLASS_URL": request.getfixturevalue("postgres_url")}
