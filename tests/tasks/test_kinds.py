"""Kinds: how examples are encoded, read out, scored and told, on every family that can do them."""

from __future__ import annotations

import pytest
import torch
from small_lessons import small_lesson, small_task
from tiny import DECODERS, ENCODER_DECODERS, FAMILIES, POSITIONS, WIDTH, tiny_loaded

from tss.backbones.backbone import Pass
from tss.errors import ConfigError
from tss.tasks.batches import IGNORED, Row
from tss.tasks.kind import Head, ReadingConfig, kind_of
from tss.tasks.task import Lengths

GENERATORS = (*ENCODER_DECODERS, *DECODERS)


def kind(name: str, labels=("good", "bad"), reading: dict | None = None, **lengths):
    return kind_of(name)(labels, Lengths(**lengths), "", ReadingConfig(**(reading or {})))


# Classification.


@pytest.mark.parametrize("family", FAMILIES)
def test_a_pair_is_two_fields_with_a_separator(family):
    backbone = tiny_loaded(family)
    made, text = kind("classification", max_input=40), backbone.text
    row = made.row(backbone, ("the screen is great", "screen"), "bad")
    tail = [text.separator, *text.tokens(" screen"), *text.closing]
    assert row.ids == [*text.opening, *text.tokens("the screen is great"), *tail]
    assert row.target == [1] and not row.cut


@pytest.mark.parametrize("family", FAMILIES)
def test_a_long_text_is_cut_and_flagged_the_pair_stays(family):
    backbone = tiny_loaded(family)
    made = kind("classification", max_input=24)
    row = made.input_row(backbone, ("the screen is great and good " * 10, "battery"))
    assert row.cut and len(row.ids) == 24
    tail = [*backbone.text.tokens(" battery"), *backbone.text.closing]
    assert row.ids[-len(tail) :] == tail
    assert not made.input_row(backbone, ("the screen",)).cut


@pytest.mark.parametrize("family", FAMILIES)
def test_no_input_is_longer_than_the_backbone_can_take(family):
    backbone = tiny_loaded(family)
    made = kind("classification", max_input=1000)
    row = made.input_row(backbone, ("the screen is great " * 300,))
    assert len(row.ids) == (1000 if family == "t5" else POSITIONS)
    if family != "t5":
        ids = torch.tensor([row.ids])
        with torch.no_grad():
            assert torch.isfinite(backbone.states(ids, torch.ones_like(ids), Pass())).all()


class Fed:
    """A backbone that gives the states it is told to."""

    reads = "mean"

    def __init__(self, states: torch.Tensor, separator: int = 9):
        self._states = states
        self.text = type("Text", (), {"separator": separator})()

    def states(self, ids, mask, added):
        return self._states


def pooled(pool: str, ids: list[list[int]], asc_pool: str = "", reads: str = "mean") -> torch.Tensor:
    from tss.tasks.batches import collate

    made = kind("classification", reading={"pool": pool, "asc_pool": asc_pool})
    batch = collate([Row(row, [0]) for row in ids], range(len(ids)), pad=9, single=True)
    states = torch.arange(batch.ids.numel(), dtype=torch.float).view(*batch.ids.shape, 1).pow(2)
    fed = Fed(states)
    fed.reads = reads
    return made.logits(fed, torch.nn.Identity(), batch, None).flatten()


def test_pools_read_what_they_say():
    ids = [[1, 2, 3, 9], [1, 9]]  # states: 0 1 4 9, 16 25 | padding 36 49
    assert pooled("first", ids).tolist() == [0.0, 16.0]
    assert pooled("last", ids).tolist() == [9.0, 25.0]
    assert pooled("mean", ids).tolist() == [3.5, 20.5]
    for reads in ("first", "last", "mean"):
        assert torch.equal(pooled("auto", ids, reads=reads), pooled(reads, ids))


def test_asc_pool_is_for_pairs_alone():
    single, pair = [[1, 2, 3, 9], [1, 9]], [[1, 9, 3, 9], [2, 9, 9]]
    assert torch.equal(pooled("last", single, "mean"), pooled("last", single))
    assert torch.equal(pooled("last", pair, "mean"), pooled("mean", pair))


@pytest.mark.parametrize(("family", "reads"), [("bart", "mean"), ("t5", "mean"), ("bert", "first"), ("gpt2", "last")])
def test_default_read_out(family, reads):
    assert tiny_loaded(family).reads == reads


def test_answers_are_the_likeliest_label_with_its_chance():
    made = kind("classification", labels=("a", "b", "c"))
    logits = torch.tensor([[0.0, 2.0, 0.0], [1.0, 0.0, 0.0]])
    answers = made.read(logits, [Row([1], [0]), Row([1], [0], cut=True)])
    assert [a.value for a in answers] == ["b", "a"] and [a.cut for a in answers] == [False, True]
    assert answers[0].confidence == pytest.approx(float(logits[0].softmax(0)[1]), abs=1e-6)
    assert made.told(answers[1], ("x",)) == {"answer": "a", "confidence": answers[1].confidence, "truncated": True}


# Generation.


@pytest.mark.parametrize("family", GENERATORS)
def test_a_target_is_its_text_and_the_end(family):
    backbone = tiny_loaded(family)
    made = kind("generation", (), max_input=20, max_target=8)
    row = made.row(backbone, ("the screen is great " * 10,), "good and bad " * 5)
    text = backbone.text
    assert row.cut and len(row.ids) == 20
    assert len(row.target) == 8 and row.target[-1] == text.end
    assert row.target[: len(text.target_opening)] == text.target_opening
    short = made.row(backbone, ("the film",), "good")
    assert short.target == [*text.target_opening, *text.tokens("good"), text.end]


@pytest.mark.parametrize("family", ["gpt2", "llama", "qwen2"])
def test_source_separator_and_target_fit_a_decoders_window(family):
    backbone = tiny_loaded(family)
    made = kind("generation", (), max_input=1000, max_target=1000, beams=1, no_repeat=0)
    row = made.row(backbone, ("the screen is great " * 100,), "good and bad " * 100)
    assert row.cut and len(row.ids) + 1 + len(row.target) <= POSITIONS
    ids = torch.tensor([row.ids])
    out = made.answers(backbone, None, _batch(ids, row), [row], Pass())
    assert out[0].cut and out[0].unfinished in (True, False)


def _batch(ids: torch.Tensor, row: Row):
    from tss.tasks.batches import Batch

    return Batch(ids, torch.ones_like(ids), torch.tensor([row.target]), (0,))


@pytest.mark.parametrize("family", GENERATORS)
def test_generation_has_no_head_of_its_own(family):
    lesson = small_lesson("generation", family)
    assert list(lesson.head.parameters()) == []
    answers = lesson.answers(lesson.test.rows, Pass())
    assert len(answers) == len(lesson.test) and all(isinstance(a.value, str) for a in answers)
    assert set(lesson.kind.told(answers[0], ("x",))) == {"answer", "confidence", "truncated", "unfinished"}


def test_a_text_at_its_limit_is_unfinished():
    backbone = tiny_loaded("gpt2")
    made = kind("generation", (), max_target=6, beams=1, no_repeat=0, min_target=6)
    row = made.input_row(backbone, ("the film",))
    ids = torch.tensor([row.ids])
    assert made.answers(backbone, None, _batch(ids, row), [row], Pass())[0].unfinished


# Losses.


@pytest.mark.parametrize("family", ["bart", "gpt2"])
@pytest.mark.parametrize("name", ["classification", "tagging", "generation"])
def test_losses_of_rows_make_the_loss_of_the_batch(name, family):
    """Classification, tagging: the mean of the rows. Generation: the mean of all target tokens."""
    lesson = small_lesson(name, family)
    whole = lesson.batch(lesson.train.rows)
    with torch.no_grad():
        rows, loss = lesson.row_losses(whole, Pass()), lesson.loss(whole, Pass())
        alone = torch.cat([lesson.row_losses(lesson.batch(lesson.train.rows, [i]), Pass()) for i in range(12)])
    assert rows.shape == (12,)
    torch.testing.assert_close(rows, alone, rtol=1e-4, atol=1e-4)
    if name == "generation":
        tokens = (whole.target != IGNORED).sum(dim=1).float()
        torch.testing.assert_close(loss, (rows * tokens).sum() / tokens.sum())
        assert lesson.kind.weight(whole) == float(tokens.sum())
    else:
        torch.testing.assert_close(loss, rows.mean())
        assert lesson.kind.weight(whole) == 12.0


# Heads.


def test_linear_head_is_drawn_from_its_key():
    head = Head(WIDTH, 3, ReadingConfig(), "0/task")
    assert sum(p.numel() for p in head.parameters()) == 3 * WIDTH + 3
    x = torch.randn(4, WIDTH)
    torch.testing.assert_close(head(x), x @ head.outer.weight.T)
    assert 0.01 < head.outer.weight.std() < 0.03 and not head.outer.bias.any()
    torch.manual_seed(99)
    again, other = (Head(WIDTH, 3, ReadingConfig(), key) for key in ("0/task", "0/other"))
    assert torch.equal(again.outer.weight, head.outer.weight)
    assert not torch.equal(other.outer.weight, head.outer.weight)


def test_two_layer_head_is_the_formula():
    head = Head(WIDTH, 3, ReadingConfig(head="two-layer", head_dropout=0.5), "k")
    assert sum(p.numel() for p in head.parameters()) == WIDTH * WIDTH + WIDTH + 3 * WIDTH + 3
    x = torch.randn(4, WIDTH)
    assert not torch.equal(head(x), head(x))  # dropout is on in training
    head.eval()
    inner, outer = head.inner, head.outer
    torch.testing.assert_close(head(x), torch.tanh(x @ inner.weight.T + inner.bias) @ outer.weight.T + outer.bias)


@pytest.mark.parametrize(
    "options", [{"head": "deep"}, {"pool": "max"}, {"asc_pool": "max"}, {"ner_shift": 2}, {"head_dropout": 1.0}]
)
def test_impossible_readings_are_refused(options):
    with pytest.raises(ConfigError):
        ReadingConfig(**options)


def test_kinds_are_called_by_their_name():
    for name in ("classification", "tagging", "generation"):
        assert kind_of(name)((), Lengths(), "", ReadingConfig()).name == name == small_task(name).kind
