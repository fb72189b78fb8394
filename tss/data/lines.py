"""Rows of JSONL and CSV files, each with its place `file:line`; what cannot be a row is refused with that place."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from tss.errors import TaskError
from tss.tasks.rows import Refused

MAX_LINE = 10_000_000  # characters
Rows = Iterator[tuple[str, dict[str, Any]]]

# Bytes that are not UTF-8 are read as these, so that the line they stand in can be named (or skipped) like any other.
_NOT_UTF8 = re.compile("[\udc80-\udcff]")


def read_jsonl(path: Path, refused: Refused) -> Rows:
    """Objects of a JSONL file. Raises TaskError if the file cannot be read, is empty or is not text."""
    with _open(path, newline=None) as file:
        for number, line in _lines(path, file, refused):
            where = f"{path}:{number}"
            if not line.strip():
                continue
            if problem := _not_utf8(line):
                refused.add(f"{where}: {problem}")
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                refused.add(f"{where}: the line is not JSON ({_short(error)})")
                continue
            if isinstance(row, dict):
                yield where, row
            else:
                refused.add(f'{where}: expected an object such as {{"text": "…"}}, not {line.strip()[:40]!r}')


def read_csv(path: Path, refused: Refused) -> Rows:
    """Rows of a CSV file by its header. Raises TaskError if the file cannot be read, is empty or has no good header."""
    limit = csv.field_size_limit(MAX_LINE)  # the default of 131,072 characters is less than a text may have
    try:
        with _open(path, newline="") as file:
            # strict: a quote that is never closed is an error, not one row that swallows the rest of the file
            reader = csv.reader((line for _, line in _lines(path, file, refused)), strict=True)
            header: list[str] | None = None
            for where, cells in _records(path, reader, refused):
                if header is None:
                    header = _header(where, cells)
                elif len(cells) != len(header):
                    refused.add(f"{where}: {len(cells)} columns where the header has {len(header)}")
                elif problem := _not_utf8("".join(cells)):
                    refused.add(f"{where}: {problem}")
                else:
                    yield where, dict(zip(header, cells, strict=True))
    finally:
        csv.field_size_limit(limit)


def _records(path: Path, reader: Any, refused: Refused) -> Iterator[tuple[str, list[str]]]:
    while True:
        where = f"{path}:{reader.line_num + 1}"
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            refused.add(f"{where}: the row is not CSV ({error})")
            continue
        if cells:
            yield where, cells


def _header(where: str, cells: list[str]) -> list[str]:
    header = [cell.strip() for cell in cells]
    if len(set(header)) != len(header):
        raise TaskError(f"{where}: the header names a column twice: {', '.join(map(repr, header[:10]))}")
    if problem := _not_utf8("".join(header)):
        raise TaskError(f"{where}: {problem}")
    return header


def _open(path: Path, newline: str | None) -> TextIO:
    try:
        with open(path, "rb") as file:
            start = file.read(8192)
        if not start.strip(b"\xef\xbb\xbf \t\r\n") and path.stat().st_size <= len(start):
            raise TaskError(f"{path} is empty")
        if b"\0" in start:
            raise TaskError(f"{path} is not a text file (binary, or UTF-16); save it as UTF-8 text")
        return open(path, encoding="utf-8-sig", errors="surrogateescape", newline=newline)
    except OSError as error:
        raise TaskError(f"cannot read {path}: {error.strerror or error}") from None


def _lines(path: Path, file: TextIO, refused: Refused) -> Iterator[tuple[int, str]]:
    """Numbered lines. One that is too long is refused without ever being held in memory as a whole."""
    number = 0
    while True:
        try:
            line = file.readline(MAX_LINE + 1)
            number += 1
            if len(line) > MAX_LINE:
                while line and line[-1] not in "\r\n":
                    line = file.readline(MAX_LINE)
                line = "\n"
                refused.add(f"{path}:{number}: the line has more than {MAX_LINE:,} characters")
        except OSError as error:
            raise TaskError(f"cannot read {path}: {error.strerror or error}") from None
        if not line:
            return
        yield number, line


def _not_utf8(text: str) -> str:
    found = _NOT_UTF8.search(text)
    return f"byte 0x{ord(found.group()) - 0xDC00:02x} is not UTF-8; save the file as UTF-8" if found else ""


def _short(error: BaseException) -> str:
    message = str(error) or type(error).__name__
    return message if len(message) <= 100 else message[:99] + "…"
