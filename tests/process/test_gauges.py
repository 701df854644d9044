"""Gauges smooth their values by time."""

from __future__ import annotations

import threading
import time

import pytest

from windlass.process.gauges import Average, CpuGauge, Peak, Typical


def test_an_average_weighs_values_by_how_long_they_held() -> None:
    average = Average(1.0)
    average.add(10.0, 0.25)
    assert average.value == pytest.approx(10)
    average.add(0.0, 10.0)
    assert average.value < 0.01
    average.reset()
    average.add(4.0, 0.25)
    assert average.value == pytest.approx(4)


def test_a_peak_is_forgotten_after_its_window() -> None:
    peak = Peak(10.0)
    assert [peak.add(value, now) for now, value in enumerate([3, 9, 2, 5, 1])] == [3, 9, 9, 9, 9]
    assert peak.add(0, 11.5) == 5
    assert peak.add(0, 13.5) == 1
    assert peak.add(0, 30.0) == 0


def test_one_hiccup_is_not_typical() -> None:
    typical = Typical(5)
    assert [typical.add(lag) for lag in (9.0, 0.1, 0.1, 0.1, 9.0)] == [None, None, 0.1, 0.1, 0.1]
    assert typical.add(9.0) == 0.1
    assert typical.add(9.0) == 9.0


def test_the_cpu_gauge_measures_this_process() -> None:
    gauge, began, spent = CpuGauge(), time.monotonic(), time.process_time()
    while time.process_time() < spent + 0.1:
        sum(range(10_000))
    share = 0.1 / (time.monotonic() - began)
    assert gauge.read() > share / 2, "also on a machine on which others compute, too"
    threading.Event().wait(0.2)
    assert gauge.read() < 0.5
