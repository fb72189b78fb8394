"""Verdicts on grids made up so that the claims hold, fail, or cannot be told from noise."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_up_runs import write_runs
from typer.testing import CliRunner

from tss.bench import examples
from tss.bench.claims import Finding, claim_tables, findings
from tss.bench.collect import Runs, of_orders, read_runs
from tss.bench.measured import Measured
from tss.bench.verdict import FAILS, HOLDS, NOISE, NOT_RUN, Part, above, at_least, below, combined, level, not_below
from tss.cli import app
from tss.data.sequences import FAMILIES
from tss.report.measures import Interval

METHODS = ["tss", "tss+", "supsup", "one-adapter", "mtl-adapter", "ncl-adapter"]
BEST = {"tss": 0.97, "tss+": 0.98, "mtl-adapter": 0.6, "ncl-adapter": 0.9}


@pytest.fixture(scope="module", autouse=True)
def quick():
    """Fewer draws, as nothing here hangs on the last digit of an interval."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(examples, "ROUNDS", 100)
        examples._drawn.cache_clear()
        yield
    examples._drawn.cache_clear()


def grid(folder: Path, right: dict[str, float], others: float) -> Path:
    rights = dict.fromkeys(METHODS, others) | right
    return write_runs(folder / "runs", [*FAMILIES, "heterogeneous"], [0, 3], METHODS, rights)


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """TSS and TSS+ are far better than what they are compared with."""
    return grid(tmp_path_factory.mktemp("good"), BEST, 0.3)


@pytest.fixture(scope="module")
def good(runs: Path) -> list[Finding]:
    return findings(Measured(read_runs(runs)))


@pytest.fixture(scope="module")
def bad(tmp_path_factory) -> list[Finding]:
    """TSS and TSS+ are far worse."""
    runs = grid(tmp_path_factory.mktemp("bad"), {"tss": 0.3, "tss+": 0.25}, 0.97)
    return findings(Measured(read_runs(runs)))


@pytest.fixture(scope="module")
def noise(tmp_path_factory) -> list[Finding]:
    """All methods are right equally often."""
    return findings(Measured(read_runs(grid(tmp_path_factory.mktemp("noise"), {}, 0.7))))


def verdict(found: list[Finding], claim: str, setting: str = "heterogeneous") -> str:
    return next(one.verdict for one in found if (one.claim, one.setting) == (claim, setting))


def part(found: list[Finding], claim: str, what: str, setting: str = "heterogeneous") -> Part:
    (one,) = (p for f in found if (f.claim, f.setting) == (claim, setting) for p in f.parts if what in p.what)
    return one


@pytest.mark.parametrize(
    ("rule", "clear", "small", "across", "lower"),
    [
        (above, HOLDS, NOISE, NOISE, FAILS),
        (below, FAILS, NOISE, NOISE, HOLDS),
        (at_least, HOLDS, HOLDS, NOISE, FAILS),
        (not_below, HOLDS, HOLDS, HOLDS, FAILS),
        (level, HOLDS, HOLDS, NOISE, FAILS),
    ],
)
def test_the_rules(rule, clear: str, small: str, across: str, lower: str):
    found = [Interval(2, 1, 3), Interval(0.1, -0.5, 0.9), Interval(-0.5, -2, 1), Interval(-2, -3, -1)]
    assert [rule(one) for one in found] == [clear, small, across, lower]


def test_less_than_a_point_lower_is_level():
    assert level(Interval(-0.5, -0.9, -0.1)) == HOLDS and level(Interval(-0.8, -1.2, -0.1)) == FAILS


def test_a_claim_is_as_good_as_its_worst_part():
    def of(*verdicts: str) -> str:
        return combined([Part("", "", "", "", one) for one in verdicts])

    assert of(HOLDS, HOLDS) == HOLDS and of(HOLDS, NOISE) == NOISE and of(HOLDS, NOISE, FAILS, NOT_RUN) == FAILS
    assert of(HOLDS, NOT_RUN) == "holds, as far as run" and of(NOT_RUN) == of() == NOT_RUN


def test_every_claim_is_there_once_a_setting(good: list[Finding]):
    assert {one.claim for one in good} == {*map(str, range(1, 14)), *(f"TSS+ {n}" for n in range(1, 8))}
    assert len({(one.claim, one.setting) for one in good}) == len(good)


@pytest.mark.parametrize("setting", ["heterogeneous", "homogeneous"])
def test_differences(good: list[Finding], bad: list[Finding], noise: list[Finding], setting: str):
    so_far = ", as far as run"
    for claim in ("1", "3", "6", "7"):
        assert verdict(good, claim, setting) == HOLDS + so_far, claim
        assert verdict(bad, claim, setting) == FAILS, claim
    assert verdict(noise, "1", setting) == NOISE + so_far  # NCL forgot, but SupSup is as good
    assert part(noise, "1", "above SupSup", setting).verdict == NOISE
    assert part(noise, "1", "NCL (Adapter)", setting).verdict == HOLDS
    assert (verdict(good, "8", setting), verdict(bad, "8", setting)) == (HOLDS + so_far, FAILS)


def test_the_number_behind_a_verdict(runs: Path, good: list[Finding], bad: list[Finding]):
    one = part(good, "1", "above SupSup")
    assert (one.paper, one.orders) == ("+1.59", "2/2") and part(bad, "1", "above SupSup").orders == "0/2"
    measured = Measured(read_runs(runs))
    found = measured.interval(("heterogeneous", "tss"), ("heterogeneous", "supsup"), FAMILIES)
    assert found and one.ours.startswith(f"{found.difference:+.2f} [{found.low:+.2f}, {found.high:+.2f}] (")
    ours, theirs = (float(number) for number in one.ours.split("(")[1].rstrip(")").split(", "))
    assert ours - theirs == pytest.approx(found.difference, abs=0.02)


def test_goals_of_tss_plus(good: list[Finding], bad: list[Finding], noise: list[Finding]):
    for setting in ("heterogeneous", "homogeneous"):
        assert [verdict(good, f"TSS+ {n}", setting) for n in range(1, 7)] == [HOLDS] * 6
        assert [verdict(bad, f"TSS+ {n}", setting) for n in range(1, 7)] == [FAILS] * 5 + [HOLDS]
        assert {verdict(noise, f"TSS+ {n}", setting) for n in (3, 4)} <= {NOISE, FAILS}
        assert part(noise, "TSS+ 5", "MTL (Adapter)", setting).verdict == HOLDS


def changed(runs: Path, method: str, change) -> list[Finding]:
    found = read_runs(runs)
    for run in found.runs:
        if run.header["method"] == method and run.header["sequence"]:
            change(run)
    return findings(Measured(found))


def test_forgetting(runs: Path, good: list[Finding]):
    assert verdict(good, "2") == "holds, as far as run" and verdict(good, "TSS+ 6") == HOLDS
    assert part(good, "2", "TSS forgets").ours == "0 exactly"

    def forget(run) -> None:  # only a little, of one task
        first = run.lines[0]
        run.lines[-1]["final_scores"] = {first["task"]: {key: 0.9 * v for key, v in first["scores"].items()}}

    found = changed(runs, "tss", forget)
    assert verdict(found, "2") == FAILS and part(found, "2", "TSS forgets").orders == "0/2"

    def improve(run) -> None:  # in one order only
        if run.header["order"] == 3:
            run.lines[-1]["final_scores"] = {one["task"]: dict.fromkeys(one["scores"], 100.0) for one in run.lines[:-1]}

    found = changed(runs, "ncl-adapter", improve)
    assert part(found, "2", "NCL (Adapter) forgets").verdict == NOISE


def test_homogeneous_runs_forget_less(runs: Path):
    def keep(run) -> None:
        if run.header["sequence"] != "heterogeneous":
            run.lines[-1]["final_scores"] = {}

    assert part(changed(runs, "ncl-adapter", keep), "10", "NCL (Adapter)", "both").verdict == HOLDS


def test_orders(runs: Path, good: list[Finding]):
    assert verdict(good, "12") == HOLDS

    def worse(run) -> None:
        if run.header["order"] == 3:
            for line in run.lines:
                line["scores"] = dict.fromkeys(line["scores"], 1.0)

    assert verdict(changed(runs, "tss", worse), "12") == FAILS
    (one,) = (
        f for f in findings(Measured(of_orders(read_runs(runs), [0]))) if (f.claim, f.setting) == ("12", "homogeneous")
    )
    assert one.verdict == NOT_RUN and "1 more orders" in one.parts[0].missing[0][0]


def test_of_orders_keeps_what_all_orders_share(runs: Path):
    found = of_orders(read_runs(runs), [3])
    assert {run.header["order"] for run in found.runs if run.header["sequence"]} == {3}
    assert any(run.header["method"] == "supsup" for run in found.runs)
    assert {one.order for one in Measured(found).results} == {3}


def test_cost(runs: Path):
    def of(seconds: float) -> str:
        found = read_runs(runs)
        for run in found.runs:
            run.header["trained"] = 1000
            for line in run.lines:
                line["facts"] = {"seconds": seconds if run.header["method"] == "tss" else 1.0, "steps": 1}
        return verdict(findings(Measured(found)), "13", "both")

    assert of(1.05) == "holds, as far as run" and of(1.2) == FAILS


def test_what_is_missing_is_named(runs: Path):
    found = read_runs(runs)
    part = Runs(found.grid, [run for run in found.runs if run.header["method"] == "tss"])
    verdicts, numbers = claim_tables(Measured(part), "only TSS")
    assert verdicts.title == "Claims, only TSS"
    assert next(row for row in verdicts.rows if row[0] == "8")[2:] == (NOT_RUN, NOT_RUN, "")
    assert "missing: MTL, MTL (Adapter)" in {row[2] for row in numbers.rows if row[0] == "8"}


def test_the_command_line(runs: Path):
    shown = CliRunner().invoke(app, ["bench", "claims", str(runs), "--orders", "0", "--format", "csv"])
    assert shown.exit_code == 0 and '"Claims, orders 0",TSS+ 6,' in shown.stdout and "paired bootstrap" in shown.stdout
    assert CliRunner().invoke(app, ["bench", "claims", str(runs), "--orders", "x"]).exit_code == 2
