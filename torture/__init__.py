"""Faults on purpose, one module a goal: `python -m torture R2 --kills 100`. Results go to results/reliability.md."""
