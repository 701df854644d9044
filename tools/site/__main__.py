"""Builds the site into build/site, and checks it: `make docs`.

Fails on a warning, a broken link or anchor, a request to another origin, a page that the navigation
lacks, and a name of the code that the reference lacks.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tools.site.coverage import without_place
from tools.site.links import Document, broken_links, foreign_requests, read_site
from tools.site.navigation import outside_navigation
from tools.site.reference import CHAPTERS, generated_pages
from tools.site.stage import Stage

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "build" / "site-source"
SITE = ROOT / "build" / "site"
CONFIG = ROOT / "mkdocs.yml"
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_ALSO = ("CHANGELOG.md", "CONTRIBUTING.md", "benchmarks/README.md")


def main() -> int:
    """Build and check; return 1 and write what is wrong if something is, else 0."""
    Stage(ROOT, SOURCE).fill(generated_pages(), _ALSO)
    problems = [*_build()] or [*_check(read_site(SITE))]
    for problem in problems:
        sys.stdout.write(f"{problem}\n")
    if problems:
        return 1
    sys.stdout.write(f"{SITE.relative_to(ROOT)}/index.html\n")
    return 0


def _build() -> Iterator[str]:
    """Build the site, and yield the warnings."""
    done = subprocess.run(  # noqa: S603  (Our own arguments.)
        [sys.executable, "-m", "zensical", "build", "--clean", "--strict", "-f", str(CONFIG)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    said = _COLOURS.sub("", done.stdout + done.stderr)
    if done.returncode or "warning" in said.lower():
        yield said.partition("Traceback")[0]


def _check(documents: dict[str, Document]) -> Iterator[str]:
    yield from broken_links(SITE, documents)
    yield from foreign_requests(SITE, documents)
    yield from without_place(CHAPTERS, documents)
    yield from outside_navigation(CONFIG, SOURCE)


if __name__ == "__main__":
    sys.exit(main())
