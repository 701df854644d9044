"""The parts of live pages: they are brought up to date one by one, so each is always there."""

from __future__ import annotations

import asyncio
import re

import pytest

from tests.support.app_on_store import serving
from tests.web.viewing import seeded, shop, viewer
from windlass import Windlass

SECTION = re.compile(r"<(?:section|nav)\b([^>]*)>")
ALWAYS_THE_SAME = ("At a terminal",)


def parts_of(text: str) -> set[str]:
    """Return the ids of the sections of a page; each that may change has one."""
    main = text.partition("<main")[2]
    found = set()
    for section in SECTION.finditer(main):
        name = re.search(r'\bid="([^"]+)"', section[1])
        heading = main[section.end() :].partition("</h2>")[0].rpartition(">")[2]
        assert name or 'aria-label="Jobs"' in section[1] or heading in ALWAYS_THE_SAME, section[0]
        if name:
            found.add(name[1])
    return found


@pytest.mark.parametrize("path", ["/", "/jobs", "/kinds", "/queues", "/workers", "/flows"])
def test_a_live_list_has_the_same_parts_before_its_first_job_and_after(path: str) -> None:
    async def main() -> None:
        empty, full = Windlass("memory://"), shop()
        await seeded(full)
        await full.control.apause(kind="charge")
        async with serving(full), viewer(empty.web()) as early, viewer(full.web()) as late:
            early_parts = parts_of((await early.get(path)).text)
            assert early_parts == parts_of((await late.get(path)).text)
        await empty.aclose()

    asyncio.run(main())


@pytest.mark.parametrize("path", ["/kinds/send_email", "/queues/mail"])
def test_the_page_of_a_kind_or_queue_has_the_same_parts_before_its_first_job_and_after(
    path: str,
) -> None:
    async def main() -> None:
        empty, full = shop(), shop()
        await seeded(full)
        async with serving(full), viewer(empty.web()) as early, viewer(full.web()) as late:
            early_parts = parts_of((await early.get(path)).text)
            assert early_parts == parts_of((await late.get(path)).text)

    asyncio.run(main())


def test_a_search_that_cannot_be_read_is_not_live() -> None:
    """Prevents: a page whose own address is refused says that it is out of date."""

    async def main() -> None:
        async with viewer(shop().web()) as person:
            assert 'data-live="jobs"' in (await person.get("/jobs?q=state:dead")).text
            assert 'data-live=""' in (await person.get("/jobs?q=state:sleepy")).text

    asyncio.run(main())
