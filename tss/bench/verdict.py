"""Rules by which a claim about a grid holds, fails or cannot be told from noise, applied to one number at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from tss.bench import published
from tss.bench.formats import MISSING
from tss.bench.measured import Measured, Over, Side, final, forgetting
from tss.bench.measured import Run as Ran
from tss.bench.published import FAMILIES, SYSTEMS
from tss.report.measures import Interval

HOLDS, FAILS, NOISE, NOT_RUN = "holds", "fails", "within noise", "not run"
MARGIN = 1.0  # points that "level", "not hurt" and "close" allow
RULES = (
    "Differences of scores come with the 95 % interval of a paired bootstrap over test examples (orders averaged; it "
    "says nothing of other training seeds, and is not widened for the number of comparisons).",
    "“above”, “below”: holds if the interval lies on that side of 0, fails if on the other; within noise if it "
    "includes 0.",
    "“at least”: holds if the difference is 0 or more, within noise if it is less but the interval includes 0, fails "
    "if the interval lies below 0. “within noise of”: holds unless the interval lies below 0.",
    f"“level”: holds if the interval lies above −{MARGIN:g} point, fails if it reaches lower and lies below 0, else "
    "within noise.",
    "Forgetting has no interval: every order must say so; within noise if the orders disagree. Of two settings, the "
    "ranges over orders must not overlap.",
    "A claim of several parts fails if one of them fails, else is within noise if one of them is; parts that were not "
    "run are left out and named.",
)


Lack = tuple[str, str]  # a system, and the family that it lacks; no family: all of it


@dataclass(frozen=True)
class Part:
    """One number behind a claim. orders: in how many of them it points the claimed way, such as 3/3.

    missing: what would have to be run, where the verdict is NOT_RUN.
    """

    what: str
    paper: str
    ours: str
    orders: str
    verdict: str
    missing: tuple[Lack, ...] = ()

    @classmethod
    def not_run(cls, what: str, paper: str, missing: Sequence[Lack]) -> Part:
        return cls(what, paper, MISSING, MISSING, NOT_RUN, tuple(missing))


def combined(parts: Sequence[Part]) -> str:
    """The verdict of a claim from those of its parts; `, as far as run` where some were not."""
    found = {part.verdict for part in parts}
    worst = next((verdict for verdict in (FAILS, NOISE, HOLDS) if verdict in found), NOT_RUN)
    return f"{worst}, as far as run" if NOT_RUN in found and worst in (NOISE, HOLDS) else worst


def above(interval: Interval) -> str:
    return HOLDS if interval.low > 0 else FAILS if interval.high < 0 else NOISE


def below(interval: Interval) -> str:
    return above(Interval(-interval.difference, -interval.high, -interval.low))


def at_least(interval: Interval) -> str:
    return HOLDS if interval.difference >= 0 else FAILS if interval.high < 0 else NOISE


def not_below(interval: Interval) -> str:
    return FAILS if interval.high < 0 else HOLDS


def level(interval: Interval) -> str:
    return HOLDS if interval.low > -MARGIN else FAILS if interval.high < 0 else NOISE


_TEXT = {above: "above", below: "below", at_least: "at least", not_below: "within noise of", level: "level with"}


class Judge:
    """Makes parts from a grid."""

    def __init__(self, measured: Measured):
        self.measured = measured
        self.labels = {**SYSTEMS, **measured.methods()}

    def label(self, method: str) -> str:
        return SYSTEMS.get(method) or self.labels.get(method, method)

    def differs(self, rule, left: Side, right: Side, families: Sequence[str] = FAMILIES) -> Part:
        """Left against right by a rule above, on the mean of the families."""
        chosen = [family for family in families if "lamol" not in (left[1], right[1]) or family != "ner"]
        on = "mean" if len(families) > 1 else families[0].upper()
        on += " without NER" if len(chosen) < len(families) else ""
        where = "" if left[0] == right[0] else f", {left[0]} against {right[0]}"
        other = self.label(right[1]) if left[1] != right[1] else "itself"
        what = f"{self.label(left[1])} {_TEXT[rule]} {other}, {on}{where}"
        pair = [self._paper(side, chosen) for side in (left, right)]
        paper = MISSING if None in pair else f"{pair[0] - pair[1]:+.2f}"  # type: ignore[operator]
        found = self.measured.interval(left, right, chosen)
        if found is None:
            return Part.not_run(what, paper, self._lacking([left, right], chosen))
        each = [self._compared(left, right, family) for family in chosen]
        means = [fmean(fmean(pair[side].values()) for pair in each) for side in (0, 1)]
        ours = f"{found.difference:+.2f} [{found.low:+.2f}, {found.high:+.2f}] ({means[0]:.2f}, {means[1]:.2f})"
        if left[0] != right[0]:
            orders = MISSING
        elif self.measured.any_order(left) and self.measured.any_order(right):
            orders = "any"
        else:
            runs = [run for run in each[0][0] if all(run in one for one, _ in each)]
            gaps = [fmean(one[run] - other[run] for one, other in each) for run in runs]
            orders = f"{sum(rule(Interval(gap, gap, gap)) == HOLDS for gap in gaps)}/{len(gaps)}"
        return Part(what, paper, ours, orders, rule(found))

    def _compared(self, left: Side, right: Side, family: str) -> tuple[dict[Ran, float], dict[Ran, float]]:
        """Scores by order and seed; within a setting those that both sides have."""
        one, other = (self.measured.per_run(*side, family, final()) for side in (left, right))
        if left[0] != right[0]:
            return one, other
        both = sorted(one.keys() & other.keys())
        return {run: one[run] for run in both}, {run: other[run] for run in both}

    def keeps(self, side: Side) -> Part:
        """FR is exactly 0, family by family and in every order."""
        most: dict[Ran, float] = {}
        for family in FAMILIES:
            for run, rate in self.measured.per_run(*side, family, forgetting).items():
                most[run] = max(most.get(run, 0.0), abs(rate))
        what, paper = f"{self.label(side[1])} forgets nothing, FR", self._paper_rate(side, None)
        if not most:
            return Part.not_run(what, paper, self._lacking([side], FAMILIES))
        kept = sum(rate == 0.0 for rate in most.values())
        ours = "0 exactly" if kept == len(most) else f"up to {max(most.values()):.4g} either way"
        orders = "any" if self.measured.any_order(side) else f"{kept}/{len(most)}"
        return Part(what, paper, ours, orders, HOLDS if kept == len(most) else FAILS)

    def forgets(self, side: Side, family: str | None = None, less: bool = False) -> Part:
        """FR is above 0 (less: below 0), on a family or on the mean of all, in every order."""
        over = self._rate(side, family)
        sign = -1 if less else 1
        what = f"{self.label(side[1])} {'gains afterwards' if less else 'forgets'}, FR {(family or 'mean').upper()}"
        what = what.replace("FR MEAN", "mean FR")
        paper = self._paper_rate(side, family)
        if not over.values:
            return Part.not_run(what, paper, self._lacking([side], [family] if family else FAMILIES))
        signed = [sign * value for value in over.values]
        verdict = HOLDS if min(signed) > 0 else FAILS if max(signed) <= 0 else NOISE
        return Part(what, paper, _range(over), f"{sum(value > 0 for value in signed)}/{len(signed)}", verdict)

    def forgets_less(self, method: str, less: str, more: str) -> Part:
        """Mean FR is lower in the one setting than in the other."""
        one, other = (self._rate((setting, method), None) for setting in (less, more))
        rates = [self._paper_rate((setting, method), None) for setting in (less, more)]
        what, paper = f"{self.label(method)} forgets less, mean FR {less} against {more}", " against ".join(rates)
        paper = MISSING if MISSING in rates else paper
        if not one.values or not other.values:
            return Part.not_run(what, paper, self._lacking([(less, method), (more, method)], FAMILIES))
        low, high = max(one.values) < min(other.values), min(one.values) >= max(other.values)
        verdict = HOLDS if low else FAILS if high else NOISE
        return Part(what, paper, f"{_range(one)} against {_range(other)}", MISSING, verdict)

    def _rate(self, side: Side, family: str | None) -> Over:
        if family:
            return self.measured.family(*side, family, forgetting)
        families = [one for one in FAMILIES if side[1] != "lamol" or one != "ner"]
        return self.measured.average(*side, forgetting, families)

    def _paper(self, side: Side, families: Sequence[str]) -> float | None:
        printed = published.MAIN.get(side[0], {}).get(SYSTEMS.get(side[1], ""))
        values = [printed[FAMILIES.index(family)] for family in families] if printed else [None]
        known = [value for value in values if value is not None]
        return sum(known) / len(known) if known and len(known) == len(values) else None

    def _paper_rate(self, side: Side, family: str | None) -> str:
        system = SYSTEMS.get(side[1], "")
        if family is None:
            value = published.AVERAGES[side[0]].get(system, (None, None))[1]
        else:
            value = published.FORGETTING[side[0]].get(system, (None,) * 5)[FAMILIES.index(family)]
        return MISSING if value is None else f"{value:.2f}"

    def _lacking(self, sides: Sequence[Side], families: Sequence[str]) -> list[Lack]:
        """Which side lacks which of the families."""
        out: list[Lack] = []
        for setting, method in sides:
            label = self.label(method)
            if not self.measured.of(setting, method):
                out.append((label, ""))
                continue
            label += f" ({setting})" if len({at for at, _ in sides}) > 1 else ""
            gone = [one for one in families if not self.measured.family(setting, method, one, final()).values]
            out += [(label, family.upper()) for family in gone]
        return out or [("the same tasks, in an order that both have", "")]


def missing_of(parts: Sequence[Part]) -> str:
    """What a claim's parts lack, each system once: `NCL, SupSup CCD DRG`."""
    lacks: dict[str, list[str]] = {}
    for label, family in dict.fromkeys(one for part in parts for one in part.missing):
        lacks.setdefault(label, []).append(family)
    return ", ".join(label if "" in found else " ".join([label, *found]) for label, found in lacks.items())


def _range(over: Over) -> str:
    mean = f"{over.mean:.2f}" if over.mean is not None else MISSING
    return mean if len(over.values) < 2 else f"{mean} ({min(over.values):.2f} to {max(over.values):.2f})"
