"""A handler in a child process has its dependencies there."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest

from tests.support.app_on_store import Bed, serving


@pytest.mark.parametrize("bed", ["memory"], indirect=True)
def test_dependencies_of_an_isolated_handler_are_opened_and_closed_in_its_child(
    bed: Bed, nursery: Any
) -> None:
    async def main() -> Any:
        async with serving(nursery.app, isolated_processes=1):
            return await (await nursery.with_dependencies.aenqueue()).aresult("60s")

    opened_in, is_main, ran_in = asyncio.run(main())
    assert opened_in == ran_in != os.getpid()
    assert is_main
    assert nursery.NOTES.read_text().splitlines() == ["run", "main closed", "loop closed"]
