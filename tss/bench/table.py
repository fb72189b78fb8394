"""The paper's tables with our numbers, the published ones beside them as context."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from math import sqrt

from tss.bench import published
from tss.bench.collect import Runs, sequences
from tss.bench.cost import costs
from tss.bench.formats import MISSING, Table
from tss.bench.measured import Measure, Measured, Over, final, forgetting, forgetting_since_best, together
from tss.bench.plan import runs_as
from tss.bench.published import FAMILIES, SETTINGS, SYSTEMS, Numbers
from tss.report.measures import Interval, Score

REFERENCES = {"one": "ONE", "one-adapter": "ONE (Adapter)"}
FEW = 100  # examples of a test set whose own score is mostly chance
PAIRS = (("tss", "supsup"), ("tss", "one-adapter"))


def tables(runs: Runs, measured: Measured | None = None) -> list[Table]:
    """Every table of the paper, then those of one's own sequences; what was not run is shown as –.

    measured: the numbers of these runs, if they are at hand.
    """
    measured = measured or Measured(runs)
    out = []
    for setting in SETTINGS:
        out += [
            _main(measured, setting),
            _secondary(measured, setting),
            _forgetting(measured, setting),
            _deviations(measured, setting),
            _transfer(measured, setting),
        ]
    out += [_orders(measured, setting) for setting in SETTINGS]
    out += [_intervals(measured), *_together(measured), costs(runs)]
    out += [_own(measured, name) for name in sequences(runs) if name not in (*FAMILIES, "heterogeneous")]
    return [*out, Table("Notes", (), (), (*_about_runs(measured), *_about_noise(measured), *published.NOTES))]


# A cell of ours for one method; the paper's numbers of one system.
Ours = Callable[[str], Sequence[str]]


def _beside(title: str, measured: Measured, columns: Sequence[str], ours: Ours, theirs: dict[str, Numbers]) -> Table:
    """A row for each system of the paper, and each of ours that it has not; under each heading ours, then theirs."""
    here = measured.methods()
    rows = []
    for method in dict.fromkeys([*SYSTEMS, *here]):
        system = SYSTEMS.get(method, "")
        printed = theirs.get(system, (None,) * len(columns))
        own = ours(method) if method in here else [MISSING] * (len(columns) + 1)
        if any(cell != MISSING for cell in own[1:]) or any(value is not None for value in printed):
            pairs = [cell for one, two in zip(own[1:], printed, strict=True) for cell in (one, number(two))]
            rows.append((system or here[method], own[0], *pairs))
    heads = [head for column in columns for head in (column, f"{column} (paper)")]
    return Table(title, ("system", "orders", *heads), tuple(rows))


def _main(measured: Measured, setting: str) -> Table:
    def ours(method: str) -> list[str]:
        families = [measured.family(setting, method, family, final()) for family in FAMILIES]
        average = measured.average(setting, method, final())
        lost = measured.average(setting, method, forgetting)
        return [_orders_of([*families, average]), *map(spread, [*families, average, lost])]

    theirs = {
        name: (*published.MAIN[setting].get(name, (None,) * 5), *published.AVERAGES[setting].get(name, (None, None)))
        for name in SYSTEMS.values()
    }
    columns = ["ASC MF1", "NER F1", "SUM R1", "CCD MF1", "DRG BLEU", "mean", "FR"]
    return _beside(f"Main metrics, {setting}", measured, columns, ours, theirs)


def _secondary(measured: Measured, setting: str) -> Table:
    def ours(method: str) -> list[str]:
        found = [
            measured.family(setting, method, family, final(metric)) for family, metric in published.SECONDARY_METRICS
        ]
        return [_orders_of(found), *map(spread, found)]

    columns = ["ASC Acc", "SUM R2", "SUM RL", "CCD Acc"]
    return _beside(f"Secondary metrics, {setting}", measured, columns, ours, published.SECONDARY[setting])


def _forgetting(measured: Measured, setting: str) -> Table:
    def ours(method: str) -> list[str]:
        rates = [measured.family(setting, method, family, forgetting) for family in FAMILIES]
        best = measured.average(setting, method, forgetting_since_best)
        return [_orders_of(rates), *map(spread, rates), spread(best)]

    columns = [*(family.upper() for family in FAMILIES), "mean F′"]
    theirs = {name: (*rates, None) for name, rates in published.FORGETTING[setting].items()}
    return _beside(f"Forgetting rate FR by family, {setting}", measured, columns, ours, theirs)


def _deviations(measured: Measured, setting: str) -> Table:
    def ours(method: str) -> list[str]:
        found = [measured.family(setting, method, family, final()) for family in FAMILIES]
        several = [one.deviation if len(one.values) > 1 and not one.any_order else None for one in found]
        return [_orders_of(found), *map(number, several)]

    columns = [family.upper() for family in FAMILIES]
    title = f"Population deviation over orders, {setting}"
    return _beside(title, measured, columns, ours, published.DEVIATIONS[setting])


def _transfer(measured: Measured, setting: str) -> Table:
    """What tasks gained when they were learnt, and have left of it at the end, against learning them alone."""
    rows = []
    printed = published.MAIN[setting]
    for method, label in measured.methods().items():
        for reference, name in REFERENCES.items():
            if method in REFERENCES or reference not in measured.methods():
                continue
            system = printed.get(SYSTEMS.get(method, ""), (None,) * len(FAMILIES))
            paper = [number(_minus(one, other)) for one, other in zip(system, printed[name], strict=True)]
            found = [
                [measured.family(setting, method, family, measured.alone(reference, end)) for family in FAMILIES]
                for end in (False, True)
            ]
            cells = [cell for three in zip(*(map(spread, one) for one in found), paper, strict=True) for cell in three]
            rows.append((label, name, _orders_of(found[0]), *cells))
    heads = [head for f in FAMILIES for head in (f.upper(), f"{f.upper()} final", f"{f.upper()} final (paper)")]
    title = f"Forward transfer, {setting}: A[i,i], and A[T,i], minus learning alone"
    return Table(title, ("system", "against", "orders", *heads), tuple(rows))


def _orders(measured: Measured, setting: str) -> Table:
    rows = []
    each = [measured.per_run(setting, "tss", family, final()) for family in FAMILIES]
    seeds = sorted({seed for one in each for _, seed in one}) or [0]
    for seed in seeds:
        for order, printed in enumerate(published.TSS_ORDERS[setting]):
            values = [one.get((order, seed)) for one in each]
            values.append(None if None in values else sum(v for v in values if v is not None) / len(values))
            rows.append((str(order), str(seed), *_interleave(map(number, values), map(number, printed))))
    names = [*(family.upper() for family in FAMILIES), "mean"]
    heads = _interleave(names, (f"{name} (paper)" for name in names))
    return Table(f"TSS by order, {setting}", ("order", "seed", *heads), tuple(rows))


def _intervals(measured: Measured) -> Table:
    rows = []
    for setting in SETTINGS:
        for ours, theirs in PAIRS:
            cells = []
            for family in FAMILIES:
                found = measured.interval((setting, ours), (setting, theirs), [family])
                cells.append(_shown(found))
            rows.append((setting, f"{SYSTEMS[ours]} − {SYSTEMS[theirs]}", *cells))
    notes = (
        "95 % intervals of the mean over a family's tasks when test examples are drawn anew, the same ones for both "
        "systems; orders are averaged. They say nothing of other training seeds.",
    )
    columns = ("setting", "difference", *(family.upper() for family in FAMILIES))
    return Table("Paired bootstrap over test examples", columns, tuple(rows), notes)


def _together(measured: Measured) -> list[Table]:
    """One table for every family with labels and tiny test sets."""
    out = []
    for family in FAMILIES:
        rows = []
        for method, label in measured.methods().items():
            found = [measured.family(setting, method, family, together(FEW)) for setting in SETTINGS]
            if any(one.values for one in found):
                rows.append((SYSTEMS.get(method, label), *map(spread, found)))
        if rows:
            title = f"Right answers in {family.upper()}, test sets of fewer than {FEW} examples taken as one"
            out.append(Table(title, ("system", *SETTINGS), tuple(rows)))
    return out


def _own(measured: Measured, name: str) -> Table:
    families = list(dict.fromkeys(f for one in measured.results if one.sequence == name for f in one.families))
    measures: list[Measure] = [final(), forgetting, forgetting_since_best, *map(measured.alone, REFERENCES)]
    rows = []
    for method, label in measured.methods().items():
        found = [measured.family(name, method, family, final()) for family in families]
        found += [measured.family(name, method, "", measure) for measure in measures]
        if any(one.values for one in found):
            rows.append((label, _orders_of(found), *map(spread, found)))
    columns = ("system", "orders", *families, "all tasks", "FR", "F′", *(f"over {one}" for one in REFERENCES.values()))
    return Table(f"Sequence {name}", columns, tuple(rows))


def _about_runs(measured: Measured) -> list[str]:
    settings = measured.runs.grid["settings"]
    lines = [line for run in measured.runs.runs for line in run.lines]
    spots = [spot for line in lines for spot in line.get("spot", ())]
    unequal = [spot["task"] for spot in spots if not spot["equal"]]
    probes = sum(line["proof"]["comparisons"] for line in lines)
    changed = sum(line["proof"]["changed_bytes"] for line in lines)
    out = [
        f"Ours: backbone {settings['backbone'].rpartition('/')[2]}, preset {settings['preset']}, options "
        f"{settings['options'] or 'as they are'}; mean ± population deviation over orders and seeds; “any”: the method "
        "does not depend on the order; – was not run. Means are plain means over tasks, then over families."
        + (f" Options of single systems: {'; '.join(own)}." if (own := _own_options(measured)) else ""),
        f"Methods that do not forget: {probes} comparisons of earlier tasks' probes, {changed} bytes changed; "
        f"{len(spots)} earlier cells tested again in full, {len(unequal)} of them differ"
        + (f" ({', '.join(dict.fromkeys(unequal))})." if unequal else "."),
    ]
    if settings["first"] or settings["limit_test"]:
        cuts = [f"the first {settings['first']} tasks of each order" * bool(settings["first"])]
        cuts += [f"the first {settings['limit_test']} test examples of each task" * bool(settings["limit_test"])]
        out.append(f"A cut grid: only {' and '.join(filter(None, cuts))}. These are no benchmark results.")
    return out


def _own_options(measured: Measured) -> list[str]:
    """What a system's cells were run with, where that is neither its preset's nor what the grid gives to all."""
    settings, out = measured.runs.grid["settings"], []
    common = settings["options"]
    for method, label in measured.methods().items():
        those = [run for run in measured.runs.runs if run.header["method"] == runs_as(method)]
        counts = Counter[str]()
        for run in those:
            config = run.header.get("config", {})
            given = run.options(settings["preset"]) | {key: config[key] for key in common if key in config}
            counts.update(f"{key} {value}" for key, value in given.items() if common.get(key) != value)
        words = [told + f" in {count} of {len(those)} cells" * (count < len(those)) for told, count in counts.items()]
        out += [f"{label} {', '.join(words)}"] if words else []
    return out


def _about_noise(measured: Measured) -> list[str]:
    """How much of a score is chance, family by family."""
    tests = {
        (group, task): count
        for one in measured.results
        for task, group, count in zip(one.tasks, one.families, one.tests, strict=True)
        if count
    }
    out = []
    for family in dict.fromkeys(family for family, _ in tests):
        counts = sorted(count for (group, _), count in tests.items() if group == family)
        small = [count for count in counts if count < FEW]
        if small:
            said = (
                f"{family.upper()}: {len(small)} of {len(counts)} test sets have {small[0]} to {small[-1]} examples. "
            )
            if family in ("asc", "ccd"):
                chance = [196 * sqrt(0.09 / count) for count in (small[-1], small[0])]
                said += (
                    f"At 90 % right, chance alone moves such a score by ± {chance[0]:.0f} to {chance[1]:.0f} points. "
                )
            out.append(f"{said}Single tasks of that size are noise; look at the family's mean and its interval.")
    return out


# --- cells --------------------------------------------------------------------------------------


def number(value: Score) -> str:
    return MISSING if value is None else f"{value + 0.0:.2f}".replace("-0.00", "0.00")


def spread(over: Over) -> str:
    """`91.20 ± 0.31`; without a deviation where there is but one value."""
    if over.any_order or len(over.values) < 2:
        return number(over.mean)
    return f"{number(over.mean)} ± {number(over.deviation)}"


def _shown(interval: Interval | None) -> str:
    if interval is None:
        return MISSING
    noise = ", noise" if interval.is_noise else ""
    return f"{interval.difference:+.2f} [{interval.low:+.2f}, {interval.high:+.2f}]{noise}"


def _orders_of(found: Sequence[Over]) -> str:
    """How many runs are behind a row: `5`, `3-5`, or `any`."""
    counts = sorted({len(one.values) for one in found if one.values})
    if not counts:
        return MISSING
    if all(one.any_order for one in found if one.values):
        return "any"
    return "-".join(map(str, dict.fromkeys((counts[0], counts[-1]))))


def _minus(left: Score, right: Score) -> Score:
    return None if left is None or right is None else left - right


def _interleave(left, right) -> list[str]:
    return [cell for pair in zip(left, right, strict=True) for cell in pair]
