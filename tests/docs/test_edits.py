"""Edits of a page change a file where their first line says, and nothing else of it."""

from __future__ import annotations

import pytest

from tests.docs.edits import edit_of, outline

PROGRAM = """\
# shop.py
from windlass import Windlass

app = Windlass()


@app.job
async def pay() -> None: ...


@app.job
async def ship() -> None: ...
"""


def edited(block: str) -> list[str]:
    edit = edit_of(block)
    assert edit is not None
    assert edit.file == "shop.py"
    return [line for line in edit.apply(PROGRAM).splitlines() if line]


@pytest.mark.parametrize(
    ("block", "place"),
    [
        ("# in shop.py, at the top\nimport gateway\n", 1),
        ("# in shop.py, below app\nLIMIT = 1\n", 3),
        ("# in shop.py, below pay\nLIMIT = 1\n", 5),
        ("# in shop.py, at the end\nLIMIT = 1\n", 7),
    ],
)
def test_an_addition_keeps_every_other_line(block: str, place: int) -> None:
    lines = edited(block)
    assert lines.pop(place) == block.splitlines()[1]
    assert lines == [line for line in PROGRAM.splitlines() if line]


def test_a_replacement_takes_the_decorators_along_and_keeps_the_rest() -> None:
    lines = edited("# in shop.py, instead of pay\n@app.job(rate='5/s')\ndef pay(): ...\n")
    assert lines[3:5] == ["@app.job(rate='5/s')", "def pay(): ..."]
    assert lines[5:] == ["@app.job", "async def ship() -> None: ..."]
    assert "async def pay() -> None: ..." not in lines


def test_a_change_of_an_unknown_definition_is_refused() -> None:
    with pytest.raises(LookupError, match="no refund"):
        edited("# in shop.py, instead of refund\nrefund = None\n")


@pytest.mark.parametrize("block", ["# shop.py\napp = 1\n", "print()\n", "# in shop.py: a file\n"])
def test_other_blocks_are_no_edits(block: str) -> None:
    assert edit_of(block) is None


def test_an_outline_knows_imports_by_name_and_other_lines_by_order() -> None:
    one = "from a import b\nfrom a import c\n\nx = 1\ny = 2\n"
    other = "from a import (\n    b,\n    c,\n)\n\n\nx = 1\n\n\ny = 2\n"
    assert outline(one) == outline(other)
    assert outline(one) != outline(other.replace("    c,\n", ""))
    assert outline(one) != outline("from a import b, c\ny = 2\nx = 1\n")
