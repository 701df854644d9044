"""Builds a release and proves that it installs: run by `make release`.

The sdist and the wheel, which is built from the sdist, go to `dist/`. Their metadata is checked,
the wheel is installed into an empty environment, and `windlass demo` runs from there. Nothing is
uploaded.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NEEDED = ("windlass/py.typed", "windlass/cli/__init__.py", "METADATA", "LICENSE")
"""Ends of names that a wheel must have."""
_DEVELOPMENT = re.compile(r"\.dev|\+")


class NotReleasable(Exception):
    """The sources, or what was built of them, are not fit for a release."""


def main(directory: Path = ROOT / "dist", changelog: Path = ROOT / "CHANGELOG.md") -> int:
    """Build and try a release in a directory; return 1 and say why, if it is not fit."""
    version = read_version((ROOT / "src/windlass/version.py").read_text("utf-8"))
    try:
        check_sources(version, changelog.read_text("utf-8"))
        sdist, wheel = build(directory, version)
        check_contents(zipfile.ZipFile(wheel).namelist())
        run(sys.executable, "-m", "twine", "check", "--strict", str(sdist), str(wheel))
        try_out(wheel, version)
    except NotReleasable as error:
        sys.stderr.write(f"not fit for a release: {error}\n")
        return 1
    sys.stdout.write(
        f"windlass {version} is ready: {sdist.name} and {wheel.name} in {directory.name}/\n"
        f"  git tag v{version} && git push origin v{version}\n"
        "  the name windlass on the public package index belongs to another project: "
        "upload it under a name of its own only\n"
    )
    return 0


def read_version(text: str) -> str:
    """Return the version that a module declares."""
    match = re.search(r'__version__ = "(.+)"', text)
    if match is None:
        raise NotReleasable("src/windlass/version.py declares no __version__")
    return match[1]


def check_sources(version: str, changelog: str) -> None:
    """Raise unless the version is that of a release, and the changelog has all lines under it."""
    if _DEVELOPMENT.search(version):
        raise NotReleasable(f"the version must be that of a release, got {version}")
    if re.search(rf"^## {re.escape(version)}(?!\S)", changelog, re.MULTILINE) is None:
        raise NotReleasable(f"CHANGELOG.md must have a heading '## {version}'")
    unreleased = re.search(r"^## Unreleased$(.*?)(?=^## )", changelog, re.MULTILINE | re.DOTALL)
    if unreleased is not None and re.search(r"^- ", unreleased[1], re.MULTILINE):
        raise NotReleasable(f"lines under '## Unreleased' of CHANGELOG.md belong to '## {version}'")


def build(directory: Path, version: str) -> tuple[Path, Path]:
    """Build the sdist, and the wheel from it, into an empty directory."""
    shutil.rmtree(directory, ignore_errors=True)
    run(sys.executable, "-m", "build", "--outdir", str(directory), str(ROOT))
    sdist = directory / f"windlass-{version}.tar.gz"
    wheel = directory / f"windlass-{version}-py3-none-any.whl"
    if sorted(directory.iterdir()) != sorted([sdist, wheel]):
        names = ", ".join(sorted(path.name for path in directory.iterdir()))
        raise NotReleasable(f"the build must give {sdist.name} and {wheel.name}, got {names}")
    return sdist, wheel


def check_contents(names: Iterable[str]) -> None:
    """Raise unless a wheel has what users need, and only that."""
    names = list(names)
    if missing := [end for end in NEEDED if not any(name.endswith(end) for name in names)]:
        raise NotReleasable(f"the wheel must have {', '.join(missing)}")
    if strange := [name for name in names if not name.startswith(("windlass/", "windlass-"))]:
        raise NotReleasable(f"the wheel must have nothing but windlass, got {', '.join(strange)}")


def try_out(wheel: Path, version: str) -> None:
    """Install a wheel into an empty environment, and run the demo from there."""
    with tempfile.TemporaryDirectory() as directory:
        environment = Path(directory) / "environment"
        run(sys.executable, "-m", "venv", "--without-pip", str(environment))
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
        run(*pip, "--python", str(environment / "bin/python"), "install", str(wheel))
        program = str(environment / "bin/windlass")
        answer = run(program, "--version", cwd=directory).strip()
        if answer != f"windlass {version}":
            raise NotReleasable(f"windlass --version must print {version}, got {answer}")
        run(program, "demo", "--jobs", "200", cwd=directory)


def run(*command: str, cwd: str | Path = ROOT) -> str:
    """Run a program to its end, and return what it printed."""
    sys.stdout.write(f"$ {' '.join(Path(part).name for part in command)}\n")
    sys.stdout.flush()
    done = subprocess.run(  # noqa: S603 - its own tools, with arguments of its own
        command, cwd=cwd, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise NotReleasable(f"{command[0]} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
