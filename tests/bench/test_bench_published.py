"""The published numbers agree with each other wherever the notes do not say otherwise."""

from __future__ import annotations

from statistics import fmean, pstdev

import pytest

from tss.bench import published
from tss.bench.published import AVERAGES, DEVIATIONS, FORGETTING, MAIN, SECONDARY, SETTINGS, SYSTEMS, TSS_ORDERS


@pytest.mark.parametrize("setting", SETTINGS)
def test_averages_reproduce(setting: str):
    for system, numbers in MAIN[setting].items():
        assert system in SYSTEMS.values()
        if None not in numbers:
            assert AVERAGES[setting][system][0] == pytest.approx(fmean(numbers), abs=0.011), system
    for system, rates in FORGETTING[setting].items():
        if None not in rates:
            assert AVERAGES[setting][system][1] == pytest.approx(fmean(rates), abs=0.011), system


@pytest.mark.parametrize("setting", SETTINGS)
def test_orders_of_tss_give_the_printed_deviations(setting: str):
    orders = TSS_ORDERS[setting]
    for *families, average in orders:
        assert average == pytest.approx(fmean(families), abs=0.011)
    # Printed with four digits as a fraction of 1, from unrounded scores.
    for family, printed in zip(zip(*orders, strict=True), DEVIATIONS[setting]["TSS"], strict=False):
        assert pstdev(family) == pytest.approx(printed, abs=0.011)


def test_the_notes_are_right_about_the_means():
    means = [fmean(column) for column in zip(*TSS_ORDERS["heterogeneous"], strict=True)]
    assert [round(mean, 2) for mean in means] == [89.71, 58.55, 38.27, 90.51, 25.01, 60.41]
    assert MAIN["heterogeneous"]["TSS"] == TSS_ORDERS["heterogeneous"][0][:5]
    assert SECONDARY["heterogeneous"]["EWC"][1] > MAIN["heterogeneous"]["EWC"][2]
    assert "CUBER" not in FORGETTING["homogeneous"] and "MTL (Adapter)" not in MAIN["homogeneous"]
    assert any("60.41" in note for note in published.NOTES)


def test_every_row_is_whole():
    for table, length in ((MAIN, 5), (AVERAGES, 2), (SECONDARY, 4), (FORGETTING, 5), (DEVIATIONS, 5)):
        for setting in SETTINGS:
            assert {len(numbers) for numbers in table[setting].values()} == {length}
            assert set(table[setting]) <= set(SYSTEMS.values())
