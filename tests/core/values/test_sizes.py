"""Amounts of memory, as people write them."""

from __future__ import annotations

import pytest

from windlass.core.values.sizes import human_size, size


@pytest.mark.parametrize(
    ("written", "count"),
    [
        ("512MB", 512_000_000),
        ("512 mb", 512_000_000),
        ("1.5GB", 1_500_000_000),
        ("64MiB", 64 * 2**20),
        ("2GiB", 2 * 2**30),
        ("10kB", 10_000),
        ("1KiB", 1024),
        ("100b", 100),
        (4096, 4096),
    ],
)
def test_an_amount_is_read_as_it_is_written(written: str | int, count: int) -> None:
    assert size(written) == count


@pytest.mark.parametrize("wrong", ["", "512", "MB", "-1MB", "1TB", "1.MB", True, 1.5])
def test_an_amount_without_a_number_or_a_unit_is_refused(wrong: object) -> None:
    with pytest.raises(ValueError, match=r"a number and a unit, got .*; write it like '512MB'"):
        size(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", ["0MB", 0, -1, "2000000GiB"])
def test_an_amount_out_of_range_is_refused(wrong: str | int) -> None:
    with pytest.raises(ValueError, match=f"above zero and at most 1 PiB, got {wrong!r}"):
        size(wrong)


@pytest.mark.parametrize(
    ("count", "written"),
    [(999, "999B"), (1_000, "1kB"), (512_000_000, "512MB"), (206_400_000, "206.4MB")],
)
def test_an_amount_is_shown_as_people_write_it(count: int, written: str) -> None:
    assert human_size(count) == written
