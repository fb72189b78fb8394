from __future__ import annotations

import pytest
from rich.console import Console
from run_documents import TASKS, run_document

from tss.errors import TssError
from tss.report.summary import proofs, size, summarise
from tss.report.table import markdown, terminal_tables

FOUR = ("tss", "supsup", "one-adapter", "ncl")


def shown(documents, width):
    console = Console(width=width, record=True, file=open("/dev/null", "w"), force_terminal=False)  # noqa: SIM115
    console.print(terminal_tables(documents))
    return console.export_text()


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("documents", [run_document(), [run_document(seed=s, methods=FOUR) for s in range(3)]])
def test_terminal_tables_fit_and_name_every_task_and_method(documents, width):
    text = shown(documents, width)
    assert max(map(len, text.splitlines())) <= width
    words = text.split()
    for name, *_ in TASKS:
        assert all(word in words for word in name.split())
    for label in ("TSS", "SupSup", "(Adapter)"):
        assert label in words
    assert "…" not in text


def test_eight_methods_at_sixty_columns_go_below_each_other():
    text = shown(run_document(methods=(*FOUR, "m-five", "m-six", "m-seven", "m-eight")), 60)
    assert max(map(len, text.splitlines())) <= 60
    assert text.count("m-eight") == 2  # once among the scores, once among the measures


def test_markdown_has_every_task_and_marks_the_best():
    text = markdown(run_document())
    for name, *_ in TASKS:
        assert f"| {name} |" in text
    assert "| Task | Group | TSS | SupSup | ONE (Adapter) |" in text
    assert "TSS: 66 comparisons of 12 tasks, 5,280 outputs, 0 bytes changed" in text
    assert "| Forgetting rate | 0.00 | 0.00 | 0.00 |" in text  # all alike: none is best
    average = next(line for line in text.splitlines() if line.startswith("| Average score"))
    assert average.count("**") == 2 and average.split("|")[2].strip().startswith("**")


def test_markdown_shows_hostile_names_as_they_are():
    document = run_document(2)
    document["tasks"][0]["name"] = "a|b\n<script>*x*"
    assert "| a\\|b \\<script\\>\\*x\\* |" in markdown(document)


def test_rich_markup_in_a_name_is_text():
    document = run_document(2)
    document["tasks"][0]["name"] = "[red]x[/red]"
    assert "[red]x[/red]" in shown(document, 120)


def test_measures_by_hand():
    document = {
        "title": "t",
        "tasks": [{"name": "a", "group": "similar"}, {"name": "b", "group": "dissimilar"}],
        "methods": {
            "x": {"label": "X", "matrix": [[60, None], [50, 70]], "bytes": [1000, 3000]},
            "one": {"label": "ONE", "matrix": [[55, None], [55, 72]], "bytes": [500, 900]},
        },
        "reference": "one",
    }
    rows = {row.label: row for row in summarise(document).measures}
    assert rows["Average score"].cells == ("60.0", "63.5") and rows["Average score"].best == {1}
    assert rows["Average, similar"].cells == ("50.0", "55.0")
    assert rows["Forgetting rate"].cells == ("10.00", "0.00") and rows["Forgetting rate"].best == {1}
    assert rows["Forward transfer"].cells == ("+1.5", "–")
    assert rows["Transfer, dissimilar"].cells == ("-2.0", "–")
    assert rows["Bytes per task"].cells == ("2.00 kB", "700 B")
    assert "Seconds per task" not in rows


def test_several_runs_in_other_orders_give_mean_and_population_deviation():
    first = {"tasks": [{"name": "a"}, {"name": "b"}], "methods": {"x": {"matrix": [[60, None], [50, 70]]}}}
    second = {"tasks": [{"name": "b"}, {"name": "a"}], "methods": {"x": {"matrix": [[80, None], [80, 54]]}}}
    summary = summarise([first, second])
    assert [row.cells[0] for row in summary.scores] == ["52.0 ±2.0", "75.0 ±5.0"]
    assert {row.label: row.cells[0] for row in summary.measures}["Forgetting rate"] == "5.00 ±5.00"


def test_diagonal_and_final_stand_in_for_a_matrix_not_run():
    document = run_document(3, methods=("ncl",))
    full = summarise(document).measures
    matrix = document["methods"]["ncl"]["matrix"]
    document["methods"]["ncl"] |= {
        "diagonal": [matrix[i][i] for i in range(3)],
        "final": matrix[-1],
        "matrix": [[None] * 3 for _ in range(3)],
    }
    assert summarise(document).measures == full
    del document["methods"]["ncl"]["matrix"]
    assert summarise(document).measures == full


def test_a_run_cut_short_is_measured_over_what_was_learnt():
    document = run_document(6, methods=("ncl", "one-adapter"))
    matrix = document["methods"]["ncl"]["matrix"] = document["methods"]["ncl"]["matrix"][:2]
    summary = summarise(document)
    assert {row.label: row.cells[0] for row in summary.measures}[
        "Forgetting rate"
    ] == f"{matrix[0][0] - matrix[1][0]:.2f}"
    assert [row.cells[0] for row in summary.scores].count("–") == 4


def test_proof_adds_up_runs_and_tells_change():
    documents = [run_document(4, seed=s) for s in range(2)]
    assert proofs(documents)[0].line == "TSS: 12 comparisons of 4 tasks in 2 runs, 960 outputs, 0 bytes changed"
    documents[1]["proof"]["tss"]["changed_bytes"] = 1
    changed, unchanged = proofs(documents)
    assert changed.line.endswith(", 1 byte changed") and not changed.unchanged and unchanged.unchanged
    assert "✗ TSS" in shown(documents, 100) and "✓ SupSup" in shown(documents, 100)


def test_sizes():
    assert [size(n) for n in (0, 999, 29_300, 795_000, 4_200_000)] == ["0 B", "999 B", "29.3 kB", "795 kB", "4.20 MB"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tasks": []}, "has no 'tasks'"),
        ({"methods": {}}, "has no 'methods'"),
        ({"methods": {"tss": {"label": "TSS"}}}, "neither 'matrix' nor"),
        ({"methods": {"tss": {"matrix": [[1.0] * 9]}}}, "larger than its 2 tasks"),
        ({"reference": "nobody"}, "'nobody' is not one of its methods"),
        ({"tasks": [{"name": "a"}, {"name": "a"}]}, "a name of its own"),
    ],
)
def test_unusable_documents_say_what_is_wrong(change, message):
    with pytest.raises(TssError, match=message):
        summarise(run_document(2) | change)


def test_documents_of_other_tasks_do_not_mix():
    with pytest.raises(TssError, match="different tasks"):
        summarise([run_document(2), run_document(3)])
    with pytest.raises(TssError, match="no run"):
        summarise([])
