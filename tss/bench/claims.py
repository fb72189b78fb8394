"""The paper's claims checked one by one on a grid, and what is asked of TSS+; each number behind them is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tss.bench import published
from tss.bench.collect import Run, Runs
from tss.bench.formats import MISSING, Table
from tss.bench.measured import Measured, Side, final
from tss.bench.published import FAMILIES, SETTINGS
from tss.bench.verdict import (
    FAILS,
    HOLDS,
    NOT_RUN,
    RULES,
    Judge,
    Part,
    above,
    at_least,
    below,
    combined,
    level,
    missing_of,
    not_below,
)

HETEROGENEOUS, HOMOGENEOUS = SETTINGS
FORGETTING = ("ncl", "ewc", "hat", "das", "lamol", "cat", "ctr", "cuber", "l2p")  # the baselines that forget
OURS_TOO = ("ncl-adapter",)  # a baseline that the paper has not; it counts where it was run
BASELINES = ("supsup", *FORGETTING)
SIMILAR, DISSIMILAR = ("asc", "ner"), ("sum", "ccd", "drg")
RANGE = 3.0  # points of the mean over orders that count as little
SLOWER = 1.10  # times NCL's seconds a step that count as equally fast


@dataclass(frozen=True)
class Finding:
    """One claim in one setting ("both": it compares them)."""

    claim: str
    text: str
    setting: str
    parts: tuple[Part, ...]

    @property
    def verdict(self) -> str:
        return combined(self.parts)


def findings(measured: Measured) -> list[Finding]:
    """Every claim of the paper, then every goal of TSS+, in each setting."""
    checks = _Checks(measured)
    out = []
    for number, (text, make) in enumerate(checks.paper(), 1):
        out += [Finding(str(number), text, setting, tuple(parts)) for setting, parts in make()]
    for number, (text, make_goal) in enumerate(checks.goals(), 1):
        for setting in SETTINGS:
            out.append(Finding(f"TSS+ {number}", text, setting, tuple(make_goal(setting))))
    return out


Parts = Iterable[Part]
Settings = Iterable[tuple[str, Parts]]


class _Checks:
    def __init__(self, measured: Measured):
        self.measured, self.judge = measured, Judge(measured)
        here = measured.methods()
        self.also = [name for name in OURS_TOO if name in here]

    def paper(self) -> list[tuple[str, Callable[[], Settings]]]:
        return [
            ("TSS beats every continual-learning baseline on average.", self._each(self._beats_all)),
            ("TSS, SupSup (w/o SM) and Naive forget nothing; all others forget on average.",
             self._each(self._who_forgets)),
            ("TSS is clearly above EWC, HAT and SupSup on ASC and NER, and level with SupSup on SUM, CCD and DRG.",
             self._each(self._against_three)),
            ("Of the systems that transfer, CAT is last and CTR best; L2P is below ONE (Prompt); DAS and CUBER are "
             "good on ASC only (above ONE there, below it on average).", self._each(self._that_transfer)),
            ("HAT transfers little (on ASC TSS is above it) and forgets in generation.", self._each(self._hat)),
            ("Dissimilar tasks are not hurt: TSS is level with ONE, and with ONE (Adapter), on SUM, CCD and DRG.",
             self._each(self._not_hurt)),
            ("Forward transfer: TSS is above ONE, and ONE (Adapter), on ASC and NER, more so when homogeneous.",
             self._transfer),
            ("TSS is close to MTL, and to MTL (Adapter), on average.", self._each(self._close)),
            ("Every component helps: TSS is above w/o SD (also on SUM, CCD and DRG) and w/o SM; above Naive across "
             "families, level with it within one.", self._each(self._components)),
            ("Homogeneous runs forget less.", self._forget_less),
            ("In heterogeneous runs CUBER, DAS and EWC have FR below 0 on ASC, and pay for it elsewhere.",
             self._negative),
            (f"The order matters little: TSS's mean varies by at most {RANGE:g} points over the orders.",
             self._each(self._order)),
            ("TSS is as small and as fast as NCL: it trains no more parameters, and a step takes at most "
             f"{SLOWER:g} times as long.", self._as_cheap),
        ]  # fmt: skip

    def goals(self) -> list[tuple[str, Callable[[str], Parts]]]:
        def each(rule, other: str, families: Sequence[str] = FAMILIES) -> Callable[[str], Parts]:
            return lambda at: [self.judge.differs(rule, (at, "tss+"), (at, other), [one]) for one in families]

        return [
            ("At least SupSup in every family.", each(at_least, "supsup")),
            ("At least ONE (Adapter) in every family.", each(at_least, "one-adapter")),
            ("Above SupSup where tasks are similar.", each(above, "supsup", SIMILAR)),
            ("Above ONE (Adapter) where tasks are similar.", each(above, "one-adapter", SIMILAR)),
            ("Within noise of MTL (Adapter) on average.",
             lambda at: [self.judge.differs(not_below, (at, "tss+"), (at, "mtl-adapter"))]),
            ("Forgets nothing: FR exactly 0.", lambda at: [self.judge.keeps((at, "tss+"))]),
            ("At least TSS in every family.", each(at_least, "tss")),
        ]  # fmt: skip

    @staticmethod
    def _each(parts: Callable[[str], Parts]) -> Callable[[], Settings]:
        return lambda: [(setting, parts(setting)) for setting in SETTINGS]

    def _tss(self, rule, at: str, other: str, families: Sequence[str] = FAMILIES) -> Part:
        return self.judge.differs(rule, (at, "tss"), (at, other), families)

    def _beats_all(self, at: str) -> Parts:
        return [self._tss(above, at, other) for other in (*BASELINES, *self.also)]

    def _who_forgets(self, at: str) -> Parts:
        yield from (self.judge.keeps((at, method)) for method in ("tss", "supsup", "tss-naive"))
        yield from (self.judge.forgets((at, method)) for method in (*FORGETTING, "tss-no-sd", *self.also))

    def _against_three(self, at: str) -> Parts:
        for other in ("ewc", "hat", "supsup"):
            yield from (self._tss(above, at, other, [family]) for family in SIMILAR)
        yield from (self._tss(level, at, "supsup", [family]) for family in DISSIMILAR)

    def _that_transfer(self, at: str) -> Parts:
        def differs(rule, one: str, other: str, families: Sequence[str] = FAMILIES) -> Part:
            return self.judge.differs(rule, (at, one), (at, other), families)

        yield from (differs(below, "cat", other) for other in ("l2p", "das", "cuber", "ctr"))
        yield differs(below, "l2p", "one-prompt")
        for method in ("das", "cuber"):
            yield differs(above, method, "one", ["asc"])
            yield differs(below, method, "one")
        yield from (differs(above, "ctr", other) for other in ("l2p", "das", "cuber"))

    def _hat(self, at: str) -> Parts:
        yield self._tss(above, at, "hat", ["asc"])
        yield from (self.judge.forgets((at, "hat"), family) for family in ("sum", "drg"))

    def _not_hurt(self, at: str) -> Parts:
        return [self._tss(level, at, alone, [one]) for alone in ("one", "one-adapter") for one in DISSIMILAR]

    def _transfer(self) -> Settings:
        for at in SETTINGS:
            yield at, [self._tss(above, at, alone, [one]) for alone in ("one", "one-adapter") for one in SIMILAR]
        sides: tuple[Side, Side] = ((HOMOGENEOUS, "tss"), (HETEROGENEOUS, "tss"))
        yield "both", [self.judge.differs(above, *sides, [family]) for family in SIMILAR]

    def _close(self, at: str) -> Parts:
        return [self._tss(level, at, "mtl"), self._tss(level, at, "mtl-adapter")]

    def _components(self, at: str) -> Parts:
        yield from (self._tss(above, at, "tss-no-sd", families) for families in (FAMILIES, *([f] for f in DISSIMILAR)))
        yield self._tss(above, at, "supsup")
        yield self._tss(above if at == HETEROGENEOUS else level, at, "tss-naive")

    def _forget_less(self) -> Settings:
        methods = (*FORGETTING, "tss-no-sd", *self.also)
        yield "both", [self.judge.forgets_less(method, HOMOGENEOUS, HETEROGENEOUS) for method in methods]

    def _negative(self) -> Settings:
        parts = []
        for method in ("cuber", "das", "ewc"):
            parts.append(self.judge.forgets((HETEROGENEOUS, method), "asc", less=True))
            parts += [self.judge.forgets((HETEROGENEOUS, method), one) for one in FAMILIES if one != "asc"]
        yield HETEROGENEOUS, parts

    def _order(self, at: str) -> Parts:
        printed = [row[-1] for row in published.TSS_ORDERS[at] if row[-1] is not None]
        paper = f"{max(printed) - min(printed):.2f} ({min(printed):.2f} to {max(printed):.2f})"
        values = self.measured.average(at, "tss", final()).values
        what = "range of TSS's mean over orders"
        if len(values) < 2:
            return [Part.not_run(what, paper, [(f"{2 - len(values)} more orders of TSS", "")])]
        span = max(values) - min(values)
        ours = f"{span:.2f} ({min(values):.2f} to {max(values):.2f})"
        return [Part(what, paper, ours, str(len(values)), HOLDS if span <= RANGE else FAILS)]

    def _as_cheap(self) -> Settings:
        parts = []
        for other in ("ncl", *self.also):
            pair = [_cost(self.measured.runs, method) for method in ("tss", other)]
            for i, (what, most, paper) in enumerate(_COSTS):
                told = f"{what}, TSS against {self.judge.label(other)}"
                one, two = (found[i] for found in pair)
                if one is None or two is None:
                    gone = [(self.judge.label(m), "") for m, value in (("tss", one), (other, two)) if value is None]
                    parts.append(Part.not_run(told, paper, gone))
                else:
                    verdict = HOLDS if one <= most * two else FAILS
                    parts.append(Part(told, paper, f"{one:,.4g} against {two:,.4g}", MISSING, verdict))
        yield "both", parts


# what, how many times NCL's is still as good, what the paper prints
_COSTS = (("M trained parameters", 1.0, "896.9 against 896.9"), ("ms a step", SLOWER, "600 against 600 minutes"))


def _cost(runs: Runs, method: str) -> tuple[float | None, float | None]:
    """Millions of trained parameters, and milliseconds a step over all tasks."""
    own: list[Run] = [run for run in runs.runs if run.header["method"] == method and run.lines]
    facts = [line["facts"] for run in own for line in run.lines]
    seconds, steps = (sum(one.get(key) or 0 for one in facts) for key in ("seconds", "steps"))
    sizes = [run.header["trained"] for run in own if run.header.get("trained") is not None]
    return (sizes[0] / 1e6 if sizes else None), (1000 * seconds / steps if steps else None)


def claim_tables(measured: Measured, shown: str = "") -> list[Table]:
    """The verdicts, then the numbers behind them. shown: said in the titles, such as which orders."""
    found = findings(measured)
    settings = (*SETTINGS, "both")
    rows = []
    for claim in dict.fromkeys(one.claim for one in found):
        own = {one.setting: one for one in found if one.claim == claim}
        rows.append((claim, next(iter(own.values())).text, *(own[s].verdict if s in own else "" for s in settings)))
    numbers: list[tuple[str, ...]] = []
    for one in found:
        for part in one.parts:
            if part.verdict != NOT_RUN:
                cells = (part.what, part.paper, part.ours, part.orders, part.verdict)
                numbers.append((one.claim, one.setting, *cells))
        if missing := missing_of(one.parts):
            numbers.append((one.claim, one.setting, f"missing: {missing}", *[MISSING] * 3, NOT_RUN))
    columns = ("claim", "setting", "what", "paper", "ours", "orders", "verdict")
    end = f", {shown}" if shown else ""
    return [
        Table(f"Claims{end}", ("claim", "it says", *settings), tuple(rows), RULES),
        Table(f"Numbers behind the claims{end}", columns, tuple(numbers), _NOTES),
    ]


_NOTES = (
    "ours: the difference, its interval, and in brackets the two scores; of forgetting the mean and the range over "
    "orders. orders: in how many of them the bare number points the claimed way.",
    published.NOTES[1],
)
