"""The history of a store's server: workers keep its name, and report when it is another."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.app_on_store import Bed, log_lines, serving, until
from windlass import Windlass
from windlass.app.doctor.fleet_checks import lineages_apart
from windlass.core.changes import Changes
from windlass.core.restored import LINEAGE, Lineage, read_lineage


async def kept(app: Windlass) -> Lineage | None:
    return read_lineage((await app.store.records(LINEAGE)).get(LINEAGE))


@pytest.mark.parametrize("bed", ["postgres"], indirect=True)
def test_a_worker_reports_that_the_history_of_the_server_is_another(
    bed: Bed, caplog: pytest.LogCaptureFixture
) -> None:
    app = bed.app()

    async def main() -> None:
        name = await app.store.lineage()
        assert name is not None
        assert await app.store.lineage() == name
        assert await lineages_apart(app.store) is None, "nothing is known yet"
        async with serving(app):
            await until(lambda: kept(app))
        first = await kept(app)
        assert first is not None
        assert (first.name, first.before) == (name, None)
        assert await lineages_apart(app.store) is None
        assert not log_lines(caplog, "store.lineage_changed")

        other = Lineage(name="another/server", since=first.since).record
        await app.store.apply(
            [LINEAGE], lambda _, __: Changes(answer=None, records={LINEAGE: other})
        )
        found = await lineages_apart(app.store)
        assert found is not None
        assert "since workers looked last" in found.problem
        assert "windlass restored park" in found.remedy
        assert "windlass restored missing FILE" in found.remedy
        async with serving(app):
            await until(lambda: log_lines(caplog, "store.lineage_changed"))
        (line,) = log_lines(caplog, "store.lineage_changed")
        assert (line["before"], line["now"]) == ("another/server", name)
        assert "windlass restored missing FILE" in line["remedy"]
        assert await lineages_apart(app.store) is not None, "it is reported for some hours"

    asyncio.run(main())


@pytest.mark.parametrize("bed", ["memory", "sqlite", "redis"], indirect=True)
def test_stores_that_cannot_tell_report_nothing(bed: Bed) -> None:
    app = bed.app()

    async def main() -> None:
        assert await app.store.lineage() is None
        assert await lineages_apart(app.store) is None

    asyncio.run(main())
