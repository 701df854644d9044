"""The front page: its sums say whether they are exact."""

from __future__ import annotations

import asyncio
import re

import pytest

from tests.web.viewing import seeded, shop, viewer
from windlass import Windlass


async def _figures(app: Windlass) -> dict[str, str]:
    """Return the figures at the top, by their labels."""
    async with viewer(app.web()) as person:
        text = (await person.get("/")).text
    found = re.findall(r'class="label">(\w+)</span><span class="value">([^<]*)<', text)
    return dict(found)


@pytest.mark.parametrize("is_cut_off", [False, True], ids=["exact", "cut-off"])
def test_a_sum_of_counts_that_were_cut_off_is_shown_as_a_lower_bound(
    is_cut_off: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        app = shop()
        if is_cut_off:
            # From the beginning: a worker's count serves where the page's own was cut off.
            depths = app.store.depths
            monkeypatch.setattr(app.store, "depths", lambda _walk: depths(1))
        await app.aenqueue_many([app.producer("fail").draft({"number": n}) for n in range(3)])
        await seeded(app)
        await app.aenqueue_many(
            [
                app.producer("charge").draft({"cents": 1}),
                app.producer("send_email").using(delay="1h").draft({"to": "b@example.org"}),
            ]
        )
        figures = await _figures(app)
        for label in ("Waiting", "Scheduled", "Dead"):
            assert figures[label].endswith("+") is is_cut_off, (label, figures)

    asyncio.run(main())
