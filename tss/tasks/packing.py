"""Rows of a batch laid one after another into fewer, fuller rows, so that little of what is computed is padding.

How many packed rows there are follows from the number of rows, and their places are counted in coarse steps: every new
shape costs a GPU a recording.
"""

from __future__ import annotations

from collections.abc import Sequence

TOGETHER = 4  # rows in one packed row: more of them fill it better, but attention over it costs more
LONG = 320  # places of a packed row; where they would be more, fewer rows stand together
GRAIN = 64  # places of a whole batch are counted in such steps
ALIGNED = 8  # places of a packed row are a multiple of this, as attention on a GPU wants it

Size = tuple[int, int]  # tokens of a row's input and of its target; 0: the target is no text
Groups = list[list[int]]  # positions of a batch's rows, for each packed row


def arrange(sizes: Sequence[Size]) -> tuple[Groups, Size]:
    """Which rows stand together, and how many places a packed row then needs for inputs and for targets."""
    found = [_arranged(sizes, count) for count in _counts(sizes)]
    return min(found, key=lambda each: len(each[0]) * sum(each[1]))


def indices(groups: Groups, lengths: Sequence[int], places: int, width: int) -> list[list[int]]:
    """For each place of each packed row the flat index into rows padded to `width` that stands there, or -1."""
    laid = []
    for group in groups:
        row = [at for i in group for at in range(i * width, i * width + lengths[i])]
        laid.append(row + [-1] * (places - len(row)))
    return laid


def _counts(sizes: Sequence[Size]) -> list[int]:
    """Numbers of packed rows worth trying: one, but where the rows do not divide evenly."""
    rows, tokens = len(sizes), max(_totals(sizes))
    together = TOGETHER
    while together > 1 and together * tokens > LONG * rows:
        together //= 2
    most = max(rows // together, 1)
    if rows % together == 0:
        return [most]
    return list(range(min(max(most // 2, -(-tokens // LONG)), most), most + 1))


def _arranged(sizes: Sequence[Size], count: int) -> tuple[Groups, Size]:
    step = _up(-(-GRAIN // count), ALIGNED)
    groups, loads = _spread(sizes, count)
    fewest = [max(-(-total // count), max(size[side] for size in sizes)) for side, total in enumerate(_totals(sizes))]
    places = (_up(fewest[0], step), _up(fewest[1], step))
    while not _eased(sizes, groups, loads, places):
        over = [max(load[side] for load in loads) > places[side] for side in (0, 1)]
        places = (places[0] + step * over[0], places[1] + step * over[1])
    return groups, places


def _totals(sizes: Sequence[Size]) -> Size:
    return sum(size[0] for size in sizes), sum(size[1] for size in sizes)


def _up(number: int, step: int) -> int:
    return -(-number // step) * step


def _spread(sizes: Sequence[Size], count: int) -> tuple[Groups, list[list[int]]]:
    """Largest rows first, each to where least stands; and the tokens that then stand in each packed row."""
    totals = [max(total, 1) for total in _totals(sizes)]
    shares = [(inputs / totals[0], targets / totals[1]) for inputs, targets in sizes]
    groups: Groups = [[] for _ in range(count)]
    full = [(0.0, 0.0)] * count
    for i in sorted(range(len(sizes)), key=lambda i: -max(shares[i])):
        more, also = shares[i]
        least = min(range(count), key=lambda g: max(full[g][0] + more, full[g][1] + also))
        full[least] = full[least][0] + more, full[least][1] + also
        groups[least].append(i)
    return groups, [[sum(sizes[i][side] for i in group) for side in (0, 1)] for group in groups]


def _eased(sizes: Sequence[Size], groups: Groups, loads: list[list[int]], places: Size) -> bool:
    """Move and exchange rows, changing groups and loads, until all fit or nothing helps; whether all fit."""

    def over(inputs: int, targets: int) -> int:
        return max(inputs - places[0], 0) + max(targets - places[1], 0)

    while True:
        excess = [over(*load) for load in loads]
        worst = max(range(len(groups)), key=lambda g: excess[g])
        if not excess[worst]:
            return True
        best, change = 0, (0, 0, -1)
        for other in range(len(groups)):
            if other == worst:
                continue
            now = excess[worst] + excess[other]
            for i in groups[worst]:
                for k in (-1, *groups[other]):  # -1: nothing comes back
                    back = (0, 0) if k < 0 else sizes[k]
                    less = sizes[i][0] - back[0], sizes[i][1] - back[1]
                    after = over(loads[worst][0] - less[0], loads[worst][1] - less[1])
                    after += over(loads[other][0] + less[0], loads[other][1] + less[1])
                    if now - after > best:
                        best, change = now - after, (other, i, k)
        if not best:
            return False
        _exchange(sizes, groups, loads, worst, *change)


def _exchange(
    sizes: Sequence[Size], groups: Groups, loads: list[list[int]], here: int, there: int, i: int, k: int
) -> None:
    for row, begin, end in ((i, here, there), (k, there, here)):
        if row >= 0:
            groups[begin].remove(row)
            groups[end].append(row)
            for side in (0, 1):
                loads[begin][side] -= sizes[row][side]
                loads[end][side] += sizes[row][side]
