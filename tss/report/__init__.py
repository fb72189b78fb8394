"""What a run showed, for people: measures, tables for the terminal, Markdown, and one HTML page.

The report reads a *run document*, plain data as JSON holds it, and knows nothing of models or training:

    {"title": str, "command": str, "environment": {str: str}, "seed": int,
     "tasks": [{"name", "kind", "family", "group", "metric"}, ...],    in the order learnt
     "methods": {method: {
         "label": str, "forgets": bool,
         "matrix": [[score | None]],               [k][i]: points (0-100) of task i after task k was learnt
         "diagonal": [score], "final": [score],    both optional; used where the matrix was not run
         "bytes": [int], "gate_bytes": [int], "head_bytes": [int], "seconds": [float], "steps": [int],
         "open_gates": [share | None], "flips": [share | None], "importance": [mean | None],    all three 0 to 1
         "curves": [[[step, loss, dev score | None], ...], ...],
         "overlap": [[share]] | None}},            share of equal gates of tasks i and j
     "proof": {method: {"comparisons": int, "outputs": int, "changed_bytes": int}},
     "reference": method | None}                   the one that learns every task alone, for forward transfer

Lists beside the matrix have one entry per task, in the order learnt; all of them may be missing.
Every function that takes a document also takes a list of them (other seeds or orders, the same tasks), and then
gives the mean and the population deviation.
"""
