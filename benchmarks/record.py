"""Write the benchmark's record into results/README.md, the head of README.md and a picture, from packed grids alone.

python benchmarks/record.py results/raw/grid.jsonl.xz results/raw/plus.jsonl.xz    # by default all in results/raw
python benchmarks/record.py --check                                                # exits 1 if a page differs

Grids that agree in everything but the options of methods are read as one; others are shown one after another.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from record_picture import picture

from tss.backbones.adapters import AdapterConfig
from tss.bench import published
from tss.bench.claims import claim_tables
from tss.bench.collect import Run, Runs, of_orders, read_runs
from tss.bench.formats import Table, markdown
from tss.bench.measured import Measured, final, forgetting
from tss.bench.published import FAMILIES, SETTINGS, SYSTEMS
from tss.bench.table import number, spread, tables
from tss.bench.verdict import FAILS, HOLDS, NOISE, NOT_RUN
from tss.learning.schedule import LearningConfig
from tss.tasks.kind import ReadingConfig

ROOT = Path(__file__).parents[1]
TESTED, TUNED = (0, 1, 2), (3, 4)  # orders: kept for tests; those whose dev scores chose the options
COMMON = {field.name for part in (AdapterConfig, ReadingConfig, LearningConfig) for field in dataclasses.fields(part)}
TOLD = ("epochs", "max_steps", "batch_size", "patience", "precision", "dev_examples", "adapter_std", "head")
CONTEXT = "the published column is of BART-large and stands there as context, not as a comparison"
SHOWN = (
    "Main metrics",
    "Forgetting rate",
    "Forward transfer",
    "Paired bootstrap",
    "Right answers",
    "Cost",
    "TSS by order",
    "Notes",
)
START, END = "<!-- record -->\n", "<!-- end record -->"
PICTURE, ALT = "results/record.svg", "mean of the five families by system, mixed and apart, with the range over orders"


# --- grids ---------------------------------------------------------------------------------------


def merged(grids: Sequence[Runs]) -> list[Runs]:
    """Grids that fit together as one, in the order given."""
    out: list[list[Runs]] = []
    for runs in grids:
        fitting = next((group for group in out if all(_fit(one, runs) for one in group)), None)
        if fitting is None:
            out.append([runs])
        else:
            fitting.append(runs)
    return [_joined(group) for group in out]


def _fit(one: Runs, other: Runs) -> bool:
    """Whether both were made alike, on the same data, and have no cell twice with different options."""
    settings = [{**runs.grid["settings"], "options": _common(runs)} for runs in (one, other)]
    tasks, backbones, cells = (
        [{key: value for run in runs.runs for key, value in found(run.header)} for runs in (one, other)]
        for found in (
            lambda head: [(task["ref"], task["hash"]) for task in head["tasks"]],
            lambda head: [("backbone", head.get("backbone_hash"))],
            lambda head: [(head["cell"], head.get("config"))],
        )
    )
    clash = any(
        left[key] != right[key] for left, right in (tasks, backbones, cells) for key in left.keys() & right.keys()
    )
    return settings[0] == settings[1] and not clash


def _common(runs: Runs) -> dict:
    return {key: value for key, value in runs.grid["settings"]["options"].items() if key in COMMON}


def _joined(group: Sequence[Runs]) -> Runs:
    """One grid; a cell that is in two of them is taken from where it has more lines."""
    grid = {**group[0].grid, "asked": {}, "settings": {**group[0].grid["settings"]}}
    options = _common(group[0])
    cells: dict[str, Run] = {}
    for runs in group:
        grid["asked"] |= runs.grid["asked"]
        for key in ("methods", "seeds"):
            grid[key] = list(dict.fromkeys([*grid[key], *runs.grid[key]]))
        for key, value in runs.grid["settings"]["options"].items():
            same = all(one.grid["settings"]["options"].get(key, value) == value for one in group)
            options[key if same else f"{key} of {', '.join(runs.grid['methods'])}"] = value
        for run in runs.runs:
            found = cells.get(run.header["cell"])
            if found is None or len(found.lines) < len(run.lines):
                cells[run.header["cell"]] = run
    grid["settings"]["options"] = options
    return Runs(grid, list(cells.values()))


# --- what is said --------------------------------------------------------------------------------


def settings_of(runs: Runs) -> str:
    """One paragraph: the backbone, and the options that the runs' own records have in common."""
    heads = [run.header for run in runs.runs]
    size = next((f" ({head['parameters'] / 1e6:.1f} M parameters)" for head in heads if "parameters" in head), "")
    told = []
    for key in TOLD:
        values = {str(head["config"][key]) for head in heads if key in head.get("config", {})}
        if values:
            told.append(f"{key} {' or '.join(sorted(values))}")
    own = {key: value for key, value in runs.grid["settings"]["options"].items() if key not in COMMON}
    told += [f"{key} {value}" for key, value in own.items()]
    tasks = {task["name"] for head in heads for task in head["tasks"]}
    devices = sorted({str(head["environment"]["device"]) for head in heads if "device" in head["environment"]})
    cut = runs.grid["settings"]["first"] or runs.grid["settings"]["limit_test"]
    warning = "A cut grid, no benchmark results. " if cut else ""
    return (
        f"{warning}Backbone `{heads[0]['backbone']}`{size}, not BART-large: {CONTEXT}. {len(tasks)} tasks, "
        f"{len(heads)} trainings{' on ' if devices else ''}{', '.join(devices)}; "
        f"preset {runs.grid['settings']['preset']}{': ' if told else ''}{', '.join(told)}."
    )


def compact(measured: Measured, setting: str) -> Table:
    """Systems of which something was run: ours, and the published number behind a slash."""
    rows = []
    for method in dict.fromkeys([*SYSTEMS, *measured.methods()]):
        families = [measured.family(setting, method, family, final()) for family in FAMILIES]
        if not any(one.values for one in families):
            continue
        found = [*families, measured.average(setting, method, final()), measured.average(setting, method, forgetting)]
        system = SYSTEMS.get(method, "")
        printed = (
            *published.MAIN[setting].get(system, (None,) * 5),
            *published.AVERAGES[setting].get(system, (None, None)),
        )
        cells = [f"{spread(one)} / {number(two)}" for one, two in zip(found, printed, strict=True)]
        counts = sorted({len(one.values) for one in families if one.values})
        orders = "any" if families[0].any_order else "-".join(map(str, dict.fromkeys((counts[0], counts[-1]))))
        rows.append((system or measured.methods()[method], *cells, orders))
    columns = ("system", *(family.upper() for family in FAMILIES), "mean", "FR", "orders")
    return Table(f"{setting.capitalize()}: ours / published", columns, tuple(rows))


def folded(table: Table) -> str:
    """A long table that a reader opens, so that the page below is found."""
    _, _, rows = markdown([table]).partition("\n")
    return f"<details>\n<summary>{table.title}</summary>\n\n{rows.strip()}\n\n</details>\n"


def verdicts(measured: Measured) -> str:
    """The paper's claims one by one, their verdicts counted, and the goals of TSS+ if it was run."""
    table = claim_tables(measured)[0]
    goals = [row for row in table.rows if row[0].startswith("TSS+")]
    claims = [row for row in table.rows if row not in goals]
    found = Counter(cell for row in claims for cell in row[2:] if cell)
    order = sorted(found, key=lambda verdict: (HOLDS, NOISE, FAILS, NOT_RUN).index(verdict.partition(",")[0]))
    counts = ", ".join(f"{found[verdict]} {verdict.replace(', ', ' ')}" for verdict in order)
    title = f"The paper's {len(claims)} claims, one by one: {counts} (each checked in the settings it speaks of)"
    out = folded(Table(title, table.columns, tuple(claims)))
    if "tss+" in measured.methods():
        shown = Table("Goals of TSS+", ("goal", *SETTINGS), tuple(row[1:4] for row in goals))
        out += "\n" + markdown([shown]).replace("## ", "### ")
    return out


Parts = dict[str, Measured]  # which orders, in words -> their numbers


def by_orders(runs: Runs) -> Parts:
    """The orders kept for tests and, where there are more, all of them."""
    asked = {int(key.rpartition("/")[2]) for key in runs.grid["asked"]}
    ran = {run.header["order"] for run in runs.runs if run.header["sequence"]}
    whole, out = Measured(runs), {}
    if asked & set(TESTED):
        said = ", ".join(str(one) for one in TESTED if one in asked)
        out[f"orders {said}"] = Measured(of_orders(runs, TESTED), like=whole)
    if ran & set(TUNED):
        out["all orders, also those that served tuning"] = whole
    return out


def readme(groups: Sequence[Parts], command: str) -> str:
    """The block at the head of README.md: of each grid the orders kept for tests."""
    out = ["## The benchmark\n"]
    for parts in groups:
        said, measured = next(iter(parts.items()))
        out += [f"{settings_of(measured.runs)} Mean over {said} (3 and 4 served tuning).\n"]
        if parts is groups[0] and picture(measured):
            out += [f"![{ALT}]({PICTURE})\n"]
        found = [one for setting in SETTINGS if (one := compact(measured, setting)).rows]
        out += [*map(folded, found), verdicts(measured)]
    out.append(f"All tables, intervals and claims: [results/README.md](results/README.md). Made by `{command}`.")
    return "\n".join(out)


def record(groups: Sequence[Parts], command: str) -> str:
    """The block of results/README.md."""
    out = [f"## The benchmark\n\nMade by `{command}`.\n"]
    for parts in groups:
        for said, measured in parts.items():
            runs = measured.runs
            found = [one for one in tables(runs, measured) if one.title.startswith(SHOWN) and (one.rows or one.notes)]
            found += claim_tables(measured)
            out.append(f"### {runs.runs[0].header['backbone']}, {said}\n\n{settings_of(runs)}\n")
            out.append(markdown(found).replace("## ", "#### "))
    return "\n".join(out).rstrip()


def pages(files: Sequence[Path]) -> dict[Path, str]:
    """Both pages and the picture as they should be."""
    groups = [by_orders(runs) for runs in merged([read_runs(file) for file in files])]
    names = " ".join(str(file.relative_to(ROOT)) if file.is_relative_to(ROOT) else file.name for file in files)
    command = f"python benchmarks/record.py {names}"
    out = {}
    for page, make in (("README.md", readme), ("results/README.md", record)):
        block = f"{START}{make(groups, command)}\n{END}" if files else START + END
        before, found, rest = (ROOT / page).read_text("utf-8").partition(START)
        _, ended, after = rest.partition(END)
        if not found or not ended:
            raise SystemExit(f"{page} has no place for the record: a line {START.strip()} and a line {END}")
        out[ROOT / page] = before + block + after
    if groups and (drawn := picture(next(iter(groups[0].values())))):
        out[ROOT / PICTURE] = drawn
    return out


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("grids", nargs="*", type=Path)
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args(arguments)
    files = [path.resolve() for path in given.grids] or sorted((ROOT / "results" / "raw").glob("*.jsonl.xz"))
    for page, text in pages(files).items():
        if given.check and (not page.exists() or page.read_text("utf-8") != text):
            raise SystemExit(
                f"{page.name} does not say what {', '.join(file.name for file in files)} say: run this script"
            )
        if not given.check:
            page.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    main()
