"""Deploys are marked by the store's clock, with the operator, on every store."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.app_on_store import STORES, Bed
from windlass import ConfigError, Windlass
from windlass.core.deploys import MAX_MARKS

pytestmark = pytest.mark.stores(*STORES)


def test_marks_are_kept_with_time_and_operator_and_are_in_the_audit_log(bed: Bed) -> None:
    app = bed.app()

    async def main() -> None:
        first = await app.control.acting_as("ada").amark_deploy("v1.2.3")
        second = await app.control.acting_as("bob", reason="hotfix").amark_deploy("v1.2.4 <b>")
        assert await app.control.adeploys() == [second, first]
        assert (first.by, second.by) == ("ada", "bob")
        assert first.at <= second.at
        assert await app.control.adeploy("v1.2.3") == first
        entries = (await app.control.aaudit(subject="deploy")).entries
        assert [(each.action, each.subject, each.by, each.reason) for each in entries] == [
            ("mark", f"deploy:{second.name}", "bob", "hotfix"),
            ("mark", "deploy:v1.2.3", "ada", ""),
        ]

    asyncio.run(main())


def test_a_deploy_marked_twice_has_two_marks_and_old_marks_make_room(bed: Bed) -> None:
    app = bed.app()

    async def main() -> None:
        for _ in range(MAX_MARKS + 3):
            await app.control.unaudited.amark_deploy("v1")
        assert len(await app.control.adeploys()) == MAX_MARKS

    asyncio.run(main())


def test_the_blocking_forms_do_the_same(bed: Bed) -> None:
    app = bed.app()
    mark = app.control.mark_deploy("v1")
    assert app.control.deploys() == [mark]
    assert app.control.deploy("v1") == mark
    app.close()


@pytest.mark.parametrize("name", ["", "  ", "a\nb", "x" * 201])
def test_a_name_that_nobody_could_read_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="a deploy must have"):
        Windlass("memory://").control.mark_deploy(name)


def test_an_unknown_deploy_is_refused_with_the_known_ones() -> None:
    app = Windlass("memory://")
    app.control.mark_deploy("v1")
    with pytest.raises(ConfigError, match="the latest are: v1"):
        app.control.deploy("v2")
