"""The guide says of every name of a field in a job class what it means."""

from __future__ import annotations

import re

from tests.docs.test_docs import ROOT
from windlass.app.registration.job_classes import DATA, FIELDS


def rows() -> list[set[str]]:
    """Return the names in code of each row of the table on job classes."""
    text = (ROOT / "docs/guide.md").read_text("utf-8")
    table = text.partition("| in the class | meaning |\n")[2].partition("\n\n")[0]
    first_cells = [line.split("|")[1] for line in table.splitlines()[1:]]
    return [set(re.findall(r"`(\w+)`", cell)) for cell in first_cells]


def test_the_fields_that_are_options_of_a_job_are_named() -> None:
    assert rows()[1] == set(FIELDS)


def test_the_fields_that_are_data_are_named() -> None:
    assert rows()[2] == DATA
