"""Owns the environments in which the wheel is tried: which Pythons there are, and which extras.

A user has nothing but the wheel and what it declares. So each environment begins empty, without
even pip, and gets the wheel with at most one extra. To install what all of them have takes most of
the time, so an environment with an extra begins as a copy of the one without.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
_PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
_FOR_DEVELOPERS = {"bench", "dev", "docs"}
_COMPILED_HERE = {"postgres-c"}
"""Extras that need a compiler and headers, which no wheel brings."""
HERE = f"{sys.version_info.major}.{sys.version_info.minor}"


@dataclass(frozen=True)
class Wanted:
    """Which environment: a version of Python, and an extra, or none."""

    python: str
    extra: str = ""
    beside: str = ""
    """A package that a user has installed without an extra of ours."""

    def __str__(self) -> str:
        return f"{self.python}-{self.extra or self.beside or 'bare'}"


@dataclass(frozen=True)
class Environment:
    """A place where the wheel is installed, and how programs are run there."""

    wanted: Wanted
    bin: Path

    @property
    def has_psycopg(self) -> bool:
        """Whether jobs can be kept in PostgreSQL."""
        has_extra = "postgres" in self.wanted.extra or self.wanted.extra == "chaos"
        return has_extra or self.wanted.beside == "psycopg"

    @property
    def has_hiredis(self) -> bool:
        """Whether jobs can be kept in Redis."""
        return self.wanted.extra in ("chaos", "redis")

    def run(
        self, *command: str, cwd: Path, env: dict[str, str], stdin: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run one of the environment's programs to its end."""
        return subprocess.run(
            [str(self.bin / command[0]), *command[1:]],
            cwd=cwd,
            env=self.variables() | env,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    def variables(self) -> dict[str, str]:
        """Return the variables of a user's shell, in which nothing is set."""
        kept = {name: os.environ[name] for name in ("HOME", "LANG", "TMPDIR") if name in os.environ}
        return {**kept, "PATH": f"{self.bin}:/usr/bin:/bin", "WINDLASS_METRICS_PORT": "0"}


def all_wanted() -> list[Wanted]:
    """Return every environment: each version of Python, and here each extra."""
    extras = set(_PROJECT["optional-dependencies"]) - _FOR_DEVELOPERS - _COMPILED_HERE
    return [
        *(Wanted(python) for python in claimed()),
        *(Wanted(HERE, extra) for extra in sorted(extras)),
        Wanted(HERE, beside="psycopg"),
    ]


def requirements_of(extra: str) -> list[str]:
    """Return what an extra requires."""
    found: list[str] = _PROJECT["optional-dependencies"][extra]
    return found


def claimed() -> list[str]:
    """Return the versions of Python that are tried: those that we claim to run on, and this one."""
    prefix = "Programming Language :: Python :: 3."
    named = {
        "3." + each.removeprefix(prefix)
        for each in _PROJECT["classifiers"]
        if each.startswith(prefix)
    }
    return sorted(named | {HERE}, key=lambda version: int(version.partition(".")[2]))


@cache
def interpreter(version: str) -> str | None:
    """Find a Python of a version that works: this one, one on the path, or one of pyenv's."""
    if version == HERE:
        return sys.executable
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    candidates = [
        shutil.which(f"python{version}"),
        *map(str, sorted(pyenv.glob(f"versions/{version}.*/bin/python{version}"))),
    ]
    return next((each for each in candidates if each and _is(each, version)), None)


def _is(candidate: str, version: str) -> bool:
    # pyenv's own commands are on the path for versions that are not there, and fail.
    said = subprocess.run(
        [candidate, "-c", "import sys, venv; print('%d.%d' % sys.version_info[:2])"],
        capture_output=True,
        text=True,
        check=False,
    )
    return said.returncode == 0 and said.stdout.strip() == version


def build_wheel(directory: Path) -> Path:
    """Build the wheel of these sources."""
    _pip("wheel", "--no-deps", "--wheel-dir", str(directory), str(ROOT))
    (wheel,) = directory.glob("*.whl")
    return wheel


def install(wanted: Wanted, wheel: Path, directory: Path, *, bare: Path | None = None) -> None:
    """Make an empty environment, or copy the `bare` one, and install the wheel as a user would."""
    python = interpreter(wanted.python)
    assert python is not None
    if bare is None:
        subprocess.run([python, "-m", "venv", "--without-pip", str(directory)], check=True)
    else:
        copy_environment(bare, directory)
    what = f"{wheel}[{wanted.extra}]" if wanted.extra else str(wheel)
    pip_install(directory, what, *filter(None, [wanted.beside]))


def pip_install(directory: Path, *what: str) -> None:
    """Install something into an environment that has no pip."""
    # `pip --python` runs inside of the environment, so that it resolves for its version.
    _pip("--python", str(directory / "bin/python"), "install", *what)


def copy_environment(source: Path, target: Path) -> None:
    """Copy an environment; its files are the same ones on disk, but those that name its place."""
    shutil.copytree(source, target, symlinks=True, copy_function=os.link)
    for path in [target / "pyvenv.cfg", *(target / "bin").iterdir()]:
        if path.is_symlink():
            continue
        content, mode = path.read_bytes(), path.stat().st_mode
        path.unlink()  # Not written to: that would change the source as well.
        path.write_bytes(content.replace(str(source).encode(), str(target).encode()))
        path.chmod(mode)


def _pip(*args: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", *args],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
