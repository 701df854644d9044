"""Suggestions of the search box: known values, in the reach of the person, with no own reads."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.web.viewing import of_role, seeded, shop, viewer
from windlass.core.search.errors import SearchError
from windlass.core.search.parser import parse
from windlass.web.pages.jobs import mistake_in


async def _suggested(person: Any, before: str) -> list[tuple[str, str]]:
    answer = await person.get("/api/v1/suggestions", params={"search": before})
    assert answer.status_code == 200, answer.text
    return [(each["text"], each["replaces"]) for each in answer.json()["suggestions"]]


def test_fields_and_known_values_are_suggested() -> None:
    async def main() -> None:
        app = shop()
        await seeded(app)
        async with viewer(app.web()) as person:
            assert ("state:", "st") in await _suggested(person, "st")
            assert await _suggested(person, "state:de") == [("dead", "de")]
            assert ("mail", "") in await _suggested(person, "kind:fail queue:")
            assert await _suggested(person, "-kind:send") == [("send_email", "send")]
            assert ("add_up", "a") in await _suggested(person, "kind:fail,a")
            assert len(await _suggested(person, "error:")) == 1
            assert await _suggested(person, "") != []

    asyncio.run(main())


def test_payloads_are_not_suggested_to_who_may_not_see_them() -> None:
    async def main() -> None:
        app = shop()
        for payloads in (True, False):
            async with viewer(app.web(access=of_role("viewer", payloads=payloads))) as person:
                texts = [text for text, _ in await _suggested(person, "")]
                assert ("payload." in texts) is payloads

    asyncio.run(main())


def test_suggestions_read_the_store_no_more_often_than_the_page(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        app = shop()
        await seeded(app)
        reads: list[str] = []
        store = app.store
        for name in ("find", "depths", "records", "workers", "error_groups", "sweep"):
            whole = getattr(store, name)

            def counted(*args: Any, _whole: Any = whole, _name: str = name, **given: Any) -> Any:
                reads.append(_name)
                return _whole(*args, **given)

            monkeypatch.setattr(store, name, counted)
        async with viewer(app.web()) as person:
            for text in ("", "k", "kind:", "queue:", "queue:m", "state:", "worker:", "error:"):
                await _suggested(person, text)
        assert "find" not in reads
        assert reads.count("depths") <= 2

    asyncio.run(main())


def test_a_text_that_is_too_long_is_refused() -> None:
    async def main() -> None:
        async with viewer(shop().web()) as person:
            answer = await person.get("/api/v1/suggestions", params={"search": "x" * 2001})
            assert answer.status_code == 422

    asyncio.run(main())


@pytest.mark.parametrize(
    ("text", "marked"),
    [
        ("kind:fail stat:dead", "stat:dead"),
        ("state:daed since:2h", "daed"),
        ("kind:fail kind:other", "kind:other"),
        ("kind:", ""),
        ("queue: x", " "),
    ],
)
def test_the_place_of_a_mistake_is_marked(text: str, marked: str) -> None:
    with pytest.raises(SearchError) as caught:
        parse(text)
    mistake = mistake_in(text, caught.value.position)
    assert mistake.word == marked
    assert mistake.before + mistake.word + mistake.after == text

    async def main() -> None:
        async with viewer(shop().web()) as person:
            answer = await person.get("/jobs", params={"q": text})
            assert answer.status_code == 422
            assert f"<mark>{marked.strip() or '␣'}</mark>" in answer.text
            assert "at character" in answer.text

    asyncio.run(main())
