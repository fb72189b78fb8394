"""How a small task should begin: the 17 small ASC tasks, cross-validated, hundreds of trainings at once on one GPU.

    python benchmarks/small_tasks.py starts --data DATA --out results/small/starts.jsonl --device cuda
    python benchmarks/small_tasks.py sequences --data DATA --out results/small/sequences.jsonl --device cuda
    python benchmarks/small_tasks.py lines --out results/small/sequences.jsonl       # as a table

Each *lane* is one training (`small_lanes.py`). Rows are those of train and valid, in five folds by text; a lane trains
on four and is judged on the fifth, after the last step (no state is chosen, tests are not read). What differs between
the lines: the start of the scores, fresh or from sub-networks of the four large sentiment tasks (laptop, restaurant,
yelp, amazon), how firmly it stands (`firm`, TSS+'s `sticky`), and noise on the gates while they are trained. A line:
right answers of all held-out rows together, their mean loss, macro-F1 of all together and the mean of the tasks'
macro-F1, in points.

`sequences` learns all 21 tasks one after another by several rules of how a task starts from those before, orders 3 and
4 of ASC and of the mixed sequence; judged are the small tasks when just learnt, those of the second half apart, and all
of them once more by what stands at the end (`after`).
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path

import torch
from small_lanes import BATCH, FOLDS, STEPS, Bench, Lane, State, folds_of, judged
from torch import Tensor

from tss.data.sequences import load_tasks, sequence
from tss.tasks.batches import Row

LARGE = ("asc/laptop", "asc/restaurant", "ccd/yelp", "ccd/amazon")
ORDERS = (("asc", 3), ("asc", 4), ("heterogeneous", 3), ("heterogeneous", 4))  # which serve tuning


def inherited(fresh: State, scores: Tensor, head: tuple[Tensor, Tensor] | None, firm: float) -> State:
    """Scores as far from 0 as a fresh draw, `firm` times, on the side of the given ones [size] or [lanes, size].

    Given ones between -1 and 1 (votes) stand as firmly as they are sure.
    """
    there = fresh.scores.abs() * firm * scores.clamp(-1, 1)
    if head is None:
        return State(there, fresh.head, fresh.bias)
    return State(there, head[0].expand_as(fresh.head).clone(), head[1].expand_as(fresh.bias).clone())


def lane_of(name: str, folds: list[list[Row]], held: int | None) -> Lane:
    """A task that trains on all folds but one (or on all of them). Large ones are not judged: few rows are held out."""
    train = [row for f, rows in enumerate(folds) if f != held for row in rows]
    rows = [] if held is None else folds[held][: BATCH if name in LARGE else None]
    return Lane(name, train, rows, 3 if name in ("asc/laptop", "asc/restaurant") else 2)


def starts(bench: Bench, tasks: dict[str, list[list[Row]]], args, tell) -> None:
    """Small tasks from fresh scores and from sub-networks of the large ones."""
    small = [name for name in tasks if name not in LARGE]
    lanes = [lane_of(name, tasks[name], fold) for fold in range(args.folds) for name in small]
    large = [lane_of(name, tasks[name], None) for name in LARGE]
    fresh = bench.fresh([lane.name for lane in lanes])

    def run(start: str, firm: float, state: State, noise: float = 0.0, steps: int = args.steps, **how) -> None:
        state = bench.train(lanes, state, steps, noise=noise, **how) if steps else state
        tell({"start": start, "firm": firm, "noise": noise, **judged(lanes, bench.answers(lanes, state))})

    for firm in (1.0, 3.0, 10.0, 30.0):
        run("fresh", firm, State(fresh.scores * firm, fresh.head, fresh.bias))
    run("fresh, head alone", inf, fresh, lr=1e-12)

    alone = bench.train(large, bench.fresh([lane.name for lane in large]), args.large_steps)
    known = {name: (alone.scores[i].sign(), (alone.head[i], alone.bias[i])) for i, name in enumerate(LARGE)}
    known["votes"] = alone.scores.sign().mean(0), (alone.head.mean(0), alone.bias.mean(0))
    grown = None
    for lane in large:  # each from the one before
        first = bench.fresh([lane.name])
        first = first if grown is None else inherited(first, grown.scores.sign(), (grown.head, grown.bias), 3.0)
        grown = bench.train([lane], first, args.large_steps)
    assert grown is not None
    known["grown"] = grown.scores[0].sign(), (grown.head[0], grown.bias[0])
    pooled = Lane("joint", sum((lane.train for lane in large), []), [], 3)
    joint = bench.train([pooled], bench.fresh(["joint"]), 4 * args.large_steps)
    known["joint"] = joint.scores[0].sign(), (joint.head[0], joint.bias[0])
    for name in ("asc/laptop", "joint", "grown", "votes", "asc/restaurant", "ccd/amazon", "ccd/yelp"):
        scores, head = known[name]
        as_is = State(scores.expand_as(fresh.scores), *(h.expand(len(lanes), *h.shape).clone() for h in head))
        run(f"{name}, untouched", inf, as_is, steps=0)
        for firm in (1.0, 3.0, 10.0, 30.0, 100.0) if name in ("asc/laptop", "joint") else (3.0, 10.0, 30.0):
            run(name, firm, inherited(fresh, scores, head, firm))

    # One sub-network and head for all tasks' training rows together: what a sequence cannot have.
    everything = [
        Lane("all", pooled.train + sum((one.train for one in lanes[i : i + len(small)]), []), [], 3)
        for i in range(0, len(lanes), len(small))
    ]
    whole = bench.train(everything, bench.fresh(["all"] * len(everything)), 6 * args.large_steps)
    whole = State(*(part.repeat_interleave(len(small), 0) for part in vars(whole).values()))
    run("all, untouched", inf, whole, steps=0)
    for firm in (3.0, 10.0, 30.0):
        run("all", firm, inherited(fresh, whole.scores.sign(), (whole.head, whole.bias), firm))
    for noise in (0.03, 0.1):
        run("fresh", 1.0, fresh, noise)
        run("asc/laptop", 3.0, inherited(fresh, *known["asc/laptop"], 3.0), noise)


@dataclass(frozen=True)
class Rule:
    """How a task starts from those learnt before it.

    by: "fresh"; "last", the gates of the last task; "weighed", the same with a firmness that grows as the rows behind
    them, `firm` sqrt(rows before / rows of the task), 1 to 30; "line", TSS+'s line: a running mean of scores in which a
    task counts (its rows / all rows so far)^settle; "votes", the mean of all tasks' gates (-1 or 1); "recent", a
    running mean of gates in which the last task counts `share`; "best", the gates that screening finds most suitable.
    """

    by: str
    firm: float = 1.0
    share: float = 0.0  # 0: all tasks count the same
    settle: float = 0.0


RULES = (
    Rule("fresh"),
    *(Rule("last", firm) for firm in (3.0, 30.0)),
    *(Rule("weighed", firm) for firm in (1.0, 3.0)),
    *(Rule("line", settle=settle) for settle in (0.0, 0.25, 0.5, 1.0)),
    Rule("line", 3.0, settle=0.5),
    *(Rule("votes", firm) for firm in (3.0, 10.0, 30.0, 100.0)),
    *(Rule("recent", firm, 0.5) for firm in (10.0, 30.0)),
    Rule("recent", 30.0, 0.25),
    *(Rule("best", firm) for firm in (1.0, 10.0)),
)


class Line:
    """The tasks that one rule has learnt in one order."""

    def __init__(self, rule: Rule):
        self.rule = rule
        self.last: list[State] = []
        self.gates: State | None = None  # running mean of gates (-1 or 1) and heads, all tasks alike or by `share`
        self.line: State | None = None  # the same of scores, by rows
        self.rows = 0

    def add(self, one: State, rows: int) -> None:
        self.last.append(one)
        self.rows += rows
        signs = State(torch.where(one.scores > 0, 1.0, -1.0), one.head, one.bias)
        self.gates = _mean(self.gates, signs, self.rule.share or 1 / len(self.last))
        scores = State(one.scores / (self.rule.firm if self.line else 1.0), one.head, one.bias)
        self.line = _mean(self.line, scores, (rows / self.rows) ** self.rule.settle)

    def start(self, bench: Bench, lane: Lane, fresh: State) -> State:
        rule = self.rule
        if rule.by == "fresh" or self.gates is None or self.line is None:
            return fresh
        if rule.by == "line":
            return State(self.line.scores * rule.firm, self.line.head, self.line.bias)
        if rule.by in ("votes", "recent"):
            return inherited(fresh, self.gates.scores, (self.gates.head, self.gates.bias), rule.firm)
        chosen = self.last[-1]
        if rule.by == "best":
            chosen = min(self.last, key=lambda one: bench.unfitness(lane, one.scores[0]))
        firm = rule.firm
        if rule.by == "weighed":
            firm = min(30.0, max(1.0, firm * (self.rows / len(lane.train)) ** 0.5))
        return inherited(fresh, torch.where(chosen.scores > 0, 1.0, -1.0), (chosen.head, chosen.bias), firm)


def _mean(old: State | None, new: State, share: float) -> State:
    if old is None:
        return new
    return State(*(a + share * (b - a) for a, b in zip(vars(old).values(), vars(new).values(), strict=True)))


def stacked(states: Sequence[State]) -> State:
    return State(*(torch.cat([getattr(one, key) for one in states]) for key in ("scores", "head", "bias")))


def sequences(bench: Bench, tasks: dict[str, list[list[Row]]], args, tell) -> None:
    """All tasks one after another, every rule and order at once."""
    orders = [[one for one in sequence(name, order) if one in tasks] for name, order in ORDERS]
    # ASC alone has yelp and amazon at its end.
    orders = [[*order, *(name for name in tasks if name not in order)] for order in orders]
    rules = [RULES[int(i)] for i in args.rules.split(",")] if args.rules else RULES
    runs = [(Line(rule), i) for rule in rules for i in range(len(orders))]
    began = time.time()
    found: list[tuple[int, int, Lane, dict[str, Tensor]]] = []  # place, run, lane, logits by who answers
    for place in range(len(tasks)):
        lanes = [lane_of(orders[i][place], tasks[orders[i][place]], i % FOLDS) for _, i in runs]
        fresh = bench.fresh([lane.name for lane in lanes])
        first = [line.start(bench, lanes[j], fresh.of(j, 1)) for j, (line, _) in enumerate(runs)]
        learnt = bench.train(lanes, stacked(first), args.steps)
        for j, (line, _) in enumerate(runs):
            line.add(learnt.of(j, 1), len(lanes[j].train))
        gates = stacked([line.gates for line, _ in runs if line.gates])
        told = {"own": bench.answers(lanes, learnt), "votes": bench.answers(lanes, gates)}
        told["line"] = bench.answers(lanes, stacked([line.line for line, _ in runs if line.line]))
        told["votes, own head"] = bench.answers(lanes, State(gates.scores, learnt.head, learnt.bias))
        for j, lane in enumerate(lanes):
            if lane.name not in LARGE:
                found.append((place, j, lane, {who: each[j] for who, each in told.items()}))
        print(f"{time.time() - began:.0f} s: {place + 1} of {len(tasks)}", flush=True)
        if time.time() - began > args.seconds:
            break
    for rule in rules:
        mine = [one for one in found if runs[one[1]][0].rule is rule]
        late = [one for one in mine if one[0] >= len(tasks) // 2]
        for what, those in (("all", mine), ("second half", late)):
            for who in ("own", "line", "votes", "votes, own head"):
                lanes, logits = [one[2] for one in those], [one[3][who] for one in those]
                tell({**vars(rule), "what": what, "who": who, **judged(lanes, logits)})
            both = [sum(one[3][who].softmax(1) for who in ("own", "votes")).log() for one in those]
            tell({**vars(rule), "what": what, "who": "own and votes", **judged(lanes, both)})
        lanes = [one[2] for one in mine]
        lines = [runs[one[1]][0] for one in mine]
        for who, each in (
            ("last", [line.last[-1] for line in lines]),
            ("line", [line.line for line in lines]),
            ("votes", [line.gates for line in lines]),
        ):
            state = stacked([one for one in each if one])
            tell({**vars(rule), "what": "after", "who": who, **judged(lanes, bench.answers(lanes, state))})


def table(lines: Sequence[dict]) -> list[str]:
    """What was run, then right answers, macro-F1 of all rows, mean macro-F1 of the tasks, loss."""
    measured = ("right", "macro_f1", "mean", "loss", "rows")
    out = []
    for line in lines:
        what = ", ".join(f"{key} {value}" for key, value in line.items() if key not in measured and value != 0)
        numbers = " / ".join(f"{line[key]:.1f}" for key in measured[:3])
        out.append(f"{what}: {numbers}, loss {line['loss']:.3f}")
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["starts", "sequences", "lines"])
    parser.add_argument("--data", default="data", help="what `tss data prepare` wrote")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--backbone", default="bart-mini")
    parser.add_argument("--folds", type=int, default=3, help="starts: how many of the five are judged")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--large-steps", type=int, default=600)
    parser.add_argument("--seconds", type=float, default=inf, help="sequences: no further task after so many")
    parser.add_argument("--rules", default="", help="sequences: only these, by number, with commas between")
    parser.add_argument("--tasks", type=int, default=17, help="only so many small ones")
    args = parser.parse_args()
    if args.what == "lines":
        print("\n".join(table([json.loads(text) for text in args.out.read_text(encoding="utf-8").splitlines()])))
        return
    bench = Bench(args.device, args.backbone)
    small = [name for name in sequence("asc") if name not in LARGE][: args.tasks]
    tasks = {task.name: folds_of(task, bench.backbone) for task in load_tasks([*small, *LARGE], args.data)}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    began = time.time()

    def tell(line: dict) -> None:
        with args.out.open("a", encoding="utf-8") as out:
            out.write(json.dumps(line) + "\n")
        print(f"{time.time() - began:6.1f} s", line, flush=True)

    {"starts": starts, "sequences": sequences}[args.what](bench, tasks, args, tell)


if __name__ == "__main__":
    main()
