"""A build of the image gets your app, and nothing else of the folder that it is built in."""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path

import pytest

IGNORED = Path(__file__).parents[2] / "deploy" / "docker" / "Dockerfile.dockerignore"


def is_ignored(path: str) -> bool:
    """Return whether a file stays out of a build: it, or a folder above it, has a line."""
    lines = [line for line in IGNORED.read_text("utf-8").splitlines() if not line.startswith("#")]
    parts = path.split("/")
    above = ["/".join(parts[:end]) for end in range(1, 1 + len(parts))]
    return any(
        fnmatch(name, line) or (line.startswith("**/") and fnmatch(name, line.removeprefix("**/")))
        for line in lines
        for name in above
    )


@pytest.mark.parametrize(
    "path",
    [
        *(".git/config", ".venv/bin/python", ".venv-3.12/bin/python", "services/shop/venv/bin/pip"),
        *("build/site/index.html", "dist/shop-1.tar.gz", ".mypy_cache/3.11/x", "shop.egg-info/PKG"),
        *(".env", "deploy/.env.production", "windlass.db", "shop/windlass.db-wal", "db.sqlite3"),
        "src/shop/__pycache__/jobs.pyc",
    ],
)
def test_a_build_of_the_image_gets_no_environments_secrets_or_stores(path: str) -> None:
    assert is_ignored(path)


@pytest.mark.parametrize(
    "path", ["pyproject.toml", "README.md", "src/shop/jobs.py", "src/shop/build.py", "manage.py"]
)
def test_a_build_of_the_image_gets_the_app(path: str) -> None:
    assert not is_ignored(path)
