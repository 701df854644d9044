"""Prints a chapter of the reference as Markdown: `python -m tools.site.reference errors`."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import PurePosixPath

from tools.site.reference import generated_pages

_PLACES = re.compile(r'<span id="[^"]*"></span>| \{ #[^}]*\}')
"""Targets of links, which only a browser follows."""
_GAPS = re.compile(r"\n{3,}")


def main(arguments: Sequence[str]) -> int:
    """Print the chapter that is named; return 2 and list all of them if it is none."""
    chapters = readable_chapters()
    if len(arguments) != 1 or arguments[0] not in chapters:
        given = " ".join(arguments) or "nothing"
        sys.stderr.write(f"the chapter must be one of {', '.join(chapters)}, got {given}\n")
        return 2
    sys.stdout.write(chapters[arguments[0]])
    return 0


def readable_chapters() -> dict[str, str]:
    """Return the pages that need no site to be read; those of the API are filled by its build."""
    pages = {PurePosixPath(page.path): page.text for page in generated_pages()}
    folder = PurePosixPath("reference")
    return {
        path.stem: _GAPS.sub("\n\n", _PLACES.sub("", text))
        for path, text in pages.items()
        if path.parent == folder and path.stem != "index"
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
