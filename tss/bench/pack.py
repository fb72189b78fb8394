"""All lines of a grid in one compressed file, small enough to be kept in a repository."""

from __future__ import annotations

import gzip
import json
import lzma
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tss.bench.collect import read_runs, together
from tss.bench.compact import FORM, compacted, triangle
from tss.errors import TssError

LIMIT = 5 << 20  # bytes of all files in the folder together
# As small as xz gets, for text whose letters lie at any byte.
_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 4, "pb": 0}]


@dataclass(frozen=True)
class Packed:
    """bytes: of the file; beside: of all others in its folder; tasks: lines of tasks in it."""

    bytes: int
    beside: int
    cells: int
    tasks: int

    @property
    def per_task(self) -> float:
        return self.bytes / max(1, self.tasks)


def pack(paths: Sequence[Path | str], out: Path | str, most: int = LIMIT) -> Packed:
    """Put all lines of folders of runs, or of packed files, into one file, .xz or .gz; `out` may be one of them.

    Raises TssError, and writes nothing, if the files of its folder would together be larger than `most` bytes, or if
    the grids do not belong together.
    """
    runs, out = together([read_runs(path) for path in paths]), Path(out)
    opener: Any = {".xz": lzma.open, ".gz": gzip.open}.get(out.suffix)
    if opener is None:
        raise TssError(f"{out} must end in .xz or .gz, for example {out.name}.jsonl.xz")
    lines: list[Any] = [{"grid": runs.grid, "form": FORM}]
    for run in sorted(runs.runs, key=lambda run: run.header["cell"]):
        shared = [{"overlap": triangle(run.overlap)}] if run.overlap else []
        lines += [run.header, *compacted(run.lines), *shared]
    out.parent.mkdir(parents=True, exist_ok=True)
    part = out.with_name(f".{out.name}.part")
    options: dict[str, Any] = {"filters": _FILTERS} if out.suffix == ".xz" else {"compresslevel": 9}
    try:
        with opener(part, "wt", encoding="utf-8", **options) as packed:
            packed.writelines(json.dumps(line, separators=(",", ":"), ensure_ascii=False) + "\n" for line in lines)
        others = (file for file in out.parent.rglob("*") if file.is_file() and file not in (part, out))
        tasks = sum(len(run.lines) for run in runs.runs)
        made = Packed(part.stat().st_size, sum(file.stat().st_size for file in others), len(runs.runs), tasks)
        if made.bytes + made.beside > most:
            raise TssError(
                f"{out.parent} would hold {_mib(made.bytes + made.beside)}, {_mib(made.bytes)} of it in {out.name} "
                f"({made.cells} cells, {made.per_task / 1024:.1f} KiB a task); at most {_mib(most)} are allowed: pack "
                "fewer orders, or say --most"
            )
        os.replace(part, out)
    finally:
        part.unlink(missing_ok=True)
    return made


def _mib(size: int) -> str:
    return f"{size / (1 << 20):.2f} MiB"
