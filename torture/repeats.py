"""R8: for every method and kind, a training that is stopped and resumed ends as the unbroken one, bit by bit."""

from __future__ import annotations

import re
import subprocess
import sys

from torture.form import ROOT, Asked, Told

TESTS = ["tests/methods/test_method_checks.py", "tests/learning/test_resume.py", "tests/test_kill.py"]


def run(asked: Asked) -> Told:
    told = Told("pytest: each method x each kind stopped and resumed, compared bit by bit; the resume and kill tests")
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not gpu", *TESTS]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    counts = {word: int(number) for number, word in re.findall(r"(\d+) (passed|failed|errors?|skipped)", done.stdout)}
    told.numbers = counts
    told.check(done.returncode == 0, done.stdout[-300:])
    return told
