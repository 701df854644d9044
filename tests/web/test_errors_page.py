"""Errors that are rare are found: by their kind, and by what is new, whatever else fails."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.web.viewing import of_role, viewer
from windlass import PermanentError, Windlass
from windlass.web import Access
from windlass.web.live.reads import Reads
from windlass.web.rendering.no_errors import no_errors

_COMMON = 301
"""More errors than any list has."""


def _app() -> Windlass:
    app = Windlass("memory://", max_retries=0)

    async def common() -> None:
        raise PermanentError("is common")

    for number in range(_COMMON):
        app.job(queue="mail", name=f"common{number}")(common)

    @app.job(queue="mail")
    async def rare() -> None:
        raise PermanentError("a rare fault")

    return app


async def _many_errors(app: Windlass) -> None:
    """Let jobs die of many errors, each of them twice."""
    drafts = [app.producer(f"common{number}").draft({}) for number in range(_COMMON)] * 2
    await app.aenqueue_many(drafts)
    await app.arun_worker(burst=True)


async def _rare_error(app: Windlass) -> None:
    await app.aenqueue_many([app.producer("rare").draft({})])
    await app.arun_worker(burst=True)


def _errors_of(document: dict[str, Any]) -> list[tuple[str, int]]:
    return [(each["error"], each["dead"]) for each in document["errors"]]


def test_figures_of_a_kind_have_its_errors_however_rare() -> None:
    async def main() -> None:
        app = _app()
        await _many_errors(app)
        await _rare_error(app)
        async with viewer(app.web()) as person:
            found = (await person.get("/api/v1/stats?kind=rare")).json()
            (error,) = (await app.astats(kind="rare")).errors
            assert _errors_of(found) == [(error.error, 1)]

    asyncio.run(main())


_LOGINS = [pytest.param(None, id="all-queues"), pytest.param(("mail",), id="some-queues")]


@pytest.mark.parametrize("queues", _LOGINS)
@pytest.mark.parametrize("query", [{"deploy": "v2"}, {"kind": "rare"}], ids=str)
def test_the_page_finds_a_rare_error_among_many(
    query: dict[str, str], queues: tuple[str, ...] | None
) -> None:
    async def main() -> None:
        app = _app()
        await _many_errors(app)
        await app.control.amark_deploy("v2")
        await _rare_error(app)
        async with viewer(app.web(access=of_role("viewer", queues=queues))) as person:
            found = (await person.get("/errors", params=query)).text
            assert "a rare fault" in found
            assert "is common" not in found

    asyncio.run(main())


@pytest.mark.parametrize("queues", _LOGINS)
def test_the_page_says_that_it_lists_the_most_frequent_errors(
    queues: tuple[str, ...] | None,
) -> None:
    async def main() -> None:
        app = _app()
        async with viewer(app.web(access=of_role("viewer", queues=queues))) as person:
            assert "100 most frequent errors" not in (await person.get("/errors")).text
        await _many_errors(app)
        async with viewer(app.web(access=of_role("viewer", queues=queues))) as person:
            assert "100 most frequent errors" in (await person.get("/errors")).text

    asyncio.run(main())


def test_a_page_of_a_kind_shows_an_error_as_soon_as_the_figures_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Prevents: an event tells of a new error, and the page shows what it read before."""
    monkeypatch.setattr("windlass.app.stats._CACHED_FOR", timedelta(0))
    monkeypatch.setattr("windlass.web.live.reads._FRESH_SECONDS", 0.0)

    async def main() -> None:
        app = _app()
        reads = Reads(app)
        assert (await reads.stats(kind="rare")).errors == ()
        await _rare_error(app)
        (error,) = (await reads.stats(kind="rare")).errors
        assert error.dead == 1

    asyncio.run(main())


@pytest.mark.parametrize("address", ["/errors", "/api/v1/errors", "/api/v1/stats", "/kinds/"])
@pytest.mark.parametrize("queues", _LOGINS)
def test_a_kind_that_cannot_be_is_not_found(address: str, queues: tuple[str, ...] | None) -> None:
    async def main() -> None:
        app = _app()
        query = {"name" if address == "/kinds/" else "kind": "a\0b"}
        async with viewer(app.web(access=of_role("viewer", queues=queues))) as person:
            answer = await person.get(address, params=query)
            assert answer.status_code in (200, 404, 422), answer.text

    asyncio.run(main())


def _texts(access: Access, **which: Any) -> str:
    return " ".join(no_errors(access, None, **which))


def test_a_page_without_errors_says_no_more_than_was_looked_at() -> None:
    everything, some = Access(who="ada"), Access(who="ada", queues=("mail",))
    assert "Nothing failed in the last hour, and no job is dead" in _texts(everything)
    for narrowed in (
        _texts(everything, kind="rare"),
        _texts(everything, queue="mail"),
        _texts(everything, is_new=True),
        _texts(some),
        _texts(some, kind="rare"),
    ):
        assert "Nothing failed" not in narrowed
        assert "no job is dead" not in narrowed
    assert "No errors of kind rare" in _texts(everything, kind="rare")
    assert "No dead job of kind rare in your queues" in _texts(some, kind="rare")
    assert "failed in the last hour" not in _texts(some)
    searched = no_errors(some, datetime(2026, 3, 1, tzinfo=UTC), kind="rare")
    assert "not looked at" in searched[1]


@pytest.mark.parametrize("address", ["/errors", "/errors?kind=common1", "/queues/mail"])
def test_a_page_without_errors_tells_a_limited_person_of_their_queues_alone(address: str) -> None:
    async def main() -> None:
        app = _app()
        async with viewer(app.web(access=of_role("viewer", queues=("mail",)))) as person:
            shown = (await person.get(address)).text
            assert "in your queues" in shown
            assert "failed in the last hour" not in shown
        async with viewer(app.web()) as person:
            shown = (await person.get(address)).text
            assert "failed in the last hour" in shown
            assert ("Nothing failed" in shown) is (address == "/errors")

    asyncio.run(main())


def test_a_page_of_a_kind_says_which_dead_jobs_it_did_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        app = _app()
        await app.aenqueue_many([app.producer("rare").draft({}) for _ in range(3)])
        await app.arun_worker(burst=True)
        groups = app.store.error_groups

        async def bounded(**which: Any) -> Any:
            return await groups(**which, most=2)

        monkeypatch.setattr(app.store, "error_groups", bounded)
        async with viewer(app.web()) as person:
            shown = (await person.get("/kinds/rare")).text
            assert 'data-label="Dead" class="number bad">2+<' in shown
            assert "or before are not counted here" in shown

    asyncio.run(main())
