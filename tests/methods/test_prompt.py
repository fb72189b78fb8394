"""ONE (Prompt): what the encoder and the decoder are fed, room for the prompt, and other families of backbones."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from shared_checks import answers, open_learner
from small_lessons import small_lesson, small_method
from tiny import POSITIONS, WIDTH, tiny_loaded, tiny_path
from toy_tasks import toy

from tss import Learner, Task
from tss.backbones.backbone import Pass
from tss.errors import ConfigError
from tss.learning.loop import train

LIMITS = {"max_tokens": 8, "min_tokens": 1, "beams": 2, "no_repeat": 0}


def begun(lesson, name: str = "one-prompt", **options):
    method = small_method(lesson, name, **options)
    method.begin(lesson, train)
    return method


def test_prompts_begin_as_embeddings_of_words():
    lesson, other = small_lesson("classification"), small_lesson("tagging")
    method = begun(lesson)
    rows = method.backbone.embeddings.weight
    drawn = [(rows == vector).all(dim=1).nonzero().flatten().tolist() for vector in method.prompt]
    assert len(drawn) == 20 and all(drawn)
    assert method.backbone.text.special.isdisjoint(i for ids in drawn for i in ids)
    start = method.prompt
    method.begin(lesson, train)
    assert torch.equal(method.prompt, start)
    method.begin(other, train)
    assert not torch.equal(method.prompt, start)


def test_prompts_of_the_published_code_begin_as_the_first_rows():
    method = begun(small_lesson("classification"), prompt_init="first")
    assert torch.equal(method.prompt, method.backbone.embeddings.weight[:20])


@pytest.mark.parametrize("name", ["one-prompt", "l2p"])
@pytest.mark.parametrize("kind", ["classification", "tagging", "generation"])
def test_the_encoder_sees_the_prompt_and_the_decoder_is_fed_as_without(kind: str, name: str):
    lesson = small_lesson(kind)
    method, batch = begun(lesson, name), lesson.batch(lesson.train.rows)
    fed: dict[str, dict] = {}
    for part in ("encoder", "decoder"):
        module = getattr(lesson.backbone.model, f"get_{part}")()
        module.register_forward_pre_hook(lambda m, a, kw, part=part: fed.__setitem__(part, kw), with_kwargs=True)
    plain = lesson.logits(batch, Pass())
    without = fed.copy()
    logits = lesson.logits(batch, method.passing(batch))
    count = method.prefix_length
    assert logits.shape == plain.shape and not torch.allclose(logits, plain, atol=1e-3)
    assert torch.equal(fed["decoder"]["input_ids"], without["decoder"]["input_ids"])
    vectors, mask = fed["encoder"]["inputs_embeds"], fed["encoder"]["attention_mask"]
    assert torch.equal(vectors[:, count:], lesson.backbone.embeddings(batch.ids))
    assert torch.equal(mask[:, count:], batch.mask) and bool((mask[:, :count] == 1).all())
    assert torch.equal(fed["decoder"]["encoder_attention_mask"], mask)
    if name == "one-prompt":
        assert all(torch.equal(row, method.prompt) for row in vectors[:, :count])


def test_generation_listens_to_the_prompt():
    """Beams share their row's prompt: a row says the same alone as beside others, and not what it says without."""
    lesson = small_lesson("generation")
    method = begun(lesson)
    with torch.no_grad():
        method.prompt.normal_(std=3.0, generator=torch.Generator().manual_seed(0))
    rows = lesson.train.rows[:3]
    batch = lesson.batch(rows)
    added = method.recall(method.kept())
    together = lesson.backbone.generate(batch.ids, batch.mask, added, **LIMITS)
    for i, row in enumerate(rows):
        alone = lesson.batch([row])
        assert lesson.backbone.generate(alone.ids, alone.mask, added, **LIMITS) == [together[i]]
    assert together != lesson.backbone.generate(batch.ids, batch.mask, Pass(), **LIMITS)


@pytest.mark.parametrize("family", ["bart", "gpt2"])
def test_a_prefix_made_for_the_input_never_sees_the_target(family: str):
    backbone = tiny_loaded(family)
    ids = torch.tensor([[5, 6, 7], [8, 9, 10]])
    seen = []

    def prefix(given: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        seen.append((given, mask))
        return torch.zeros(len(given), 2, WIDTH)

    added = Pass(prefix=prefix)
    backbone.states(ids, torch.ones_like(ids), added)
    backbone.target_logits(ids, torch.ones_like(ids), torch.tensor([[11, 12], [13, 14]]), added)
    backbone.generate(ids, torch.ones_like(ids), added, **LIMITS)
    assert len(seen) == 3
    assert all(torch.equal(given, ids) and bool((mask == 1).all()) for given, mask in seen)


@pytest.mark.parametrize(
    ("name", "kind"), [("one-prompt", "classification"), ("one-prompt", "tagging"), ("l2p", "generation")]
)
def test_long_texts_leave_room_for_the_prompt(tmp_path: Path, kind: str, name: str):
    words = ["good", "table", "film"] * POSITIONS
    rows = {
        "classification": [(" ".join(words), "yes"), ("bad", "no")],
        "tagging": [(words, ["O"] * len(words)), (["Anna"], ["B-X"])],
        "generation": [(" ".join(words), " ".join(words)), ("bad", "bad")],
    }[kind]
    task = Task.from_lists("long", kind, rows, lengths={"max_input": 500, "max_target": 30, "beams": 2})
    options = {"prompt_length": 20} if name == "one-prompt" else {}
    learner = open_learner(tmp_path / "store", tiny_path("bart"), name, max_steps=1, **options)
    assert learner.plan(task)["cut_examples"] == 1
    warnings = learner.learn(task).warnings
    assert any(f"longer than {POSITIONS - learner.method.prefix_length} tokens and were cut" in w for w in warnings)
    again = Learner.open(tmp_path / "store", device="cpu")
    assert again.predict("long", [words if kind == "tagging" else " ".join(words)], details=True)[0]["truncated"]


def test_a_prompt_without_room_for_a_text_is_refused():
    lesson = small_lesson("classification")
    with pytest.raises(ConfigError, match="60 soft prompt vectors leave 4 positions"):
        small_method(lesson, "one-prompt", prompt_length=60)
    small_method(lesson, "tss")
    assert lesson.backbone.longest == POSITIONS  # another method has no need of them


@pytest.mark.parametrize("bad", [{"prompt_length": 0}, {"prompt_lr": 0.0}, {"prompt_init": "zero"}])
def test_bad_options_are_refused(bad: dict):
    with pytest.raises(ConfigError, match=next(iter(bad))):
        small_method(small_lesson("classification"), "one-prompt", **bad)


@pytest.mark.parametrize(("name", "family"), [("one-prompt", "t5"), ("one-prompt", "roberta"), ("l2p", "gpt2")])
def test_other_families(tmp_path: Path, name: str, family: str):
    options = {"l2p_length": 2} if name == "l2p" else {}
    learner = open_learner(tmp_path / "store", tiny_path(family), name, max_steps=2, **options)
    tasks = [toy("pair"), toy("tagging" if family == "roberta" else "generation")]
    for task in tasks:
        learner.learn(task)
        kept = answers(learner, task)
    again = Learner.open(tmp_path / "store", device="cpu")
    assert again.verify([tasks[-1].name])[0].status == "equal"
    assert answers(again, tasks[-1]) == kept
