"""The three families' shared face: states, logits of a target, generation; prefixes, padding, hashes."""

from __future__ import annotations

import pytest
import torch
from tiny import DECODERS, ENCODER_DECODERS, ENCODERS, FAMILIES, POSITIONS, WIDTH, tiny_loaded

from tss.backbones.backbone import Pass, hash_tensors
from tss.errors import BackboneError

GENERATORS = (*ENCODER_DECODERS, *DECODERS)
TEXTS = ["the screen is great", "a poor film", "John Smith went to Paris and met Anna at the bank"]
GREEDY = {"max_tokens": 8, "min_tokens": 0, "beams": 1, "no_repeat": 0}


def encode(backbone, texts: list[str], length: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    rows = [backbone.text.wrap([backbone.text.tokens(text)], POSITIONS)[0] for text in texts]
    longest = max(length, *(len(row) for row in rows))
    ids = torch.tensor([row + [backbone.text.pad] * (longest - len(row)) for row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
    return ids, mask


def adapters(backbone) -> Pass:
    """Something at every site, so that alignment mistakes of adapters show as well."""
    generator = torch.Generator().manual_seed(0)
    matrices = [torch.randn(WIDTH, WIDTH, generator=generator) for _ in range(backbone.sites.count)]
    return Pass([lambda x, m=m: 0.05 * torch.relu(x @ m) for m in matrices])


@pytest.mark.parametrize("family", FAMILIES)
def test_padding_does_not_change_states(family):
    backbone = tiny_loaded(family)
    added = adapters(backbone)
    ids, mask = encode(backbone, TEXTS, length=40)
    with torch.no_grad():
        together = backbone.states(ids, mask, added)
        for i, text in enumerate(TEXTS):
            alone_ids, alone_mask = encode(backbone, [text])
            alone = backbone.states(alone_ids, alone_mask, added)[0]
            torch.testing.assert_close(together[i, : len(alone)], alone, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("family", GENERATORS)
def test_padding_does_not_change_target_logits_or_texts(family):
    backbone = tiny_loaded(family)
    added = adapters(backbone)
    ids, mask = encode(backbone, TEXTS, length=30)
    target = torch.tensor([backbone.text.target("good and bad", 12)] * len(TEXTS))
    with torch.no_grad():
        together = backbone.target_logits(ids, mask, target, added)
        texts = backbone.generate(ids, mask, added, **GREEDY)
        for i, text in enumerate(TEXTS):
            alone = encode(backbone, [text])
            logits = backbone.target_logits(*alone, target[:1], added)[0]
            torch.testing.assert_close(together[i], logits, atol=1e-4, rtol=1e-4)
            assert texts[i] == backbone.generate(*alone, added, **GREEDY)[0]


@pytest.mark.parametrize("prefix", [False, True])
@pytest.mark.parametrize("family", GENERATORS)
def test_target_logits_pick_what_generate_picks_greedily(family, prefix):
    """Teacher forcing and generation see the same positions, separator and start mark."""
    backbone = tiny_loaded(family)
    soft = torch.randn(3, 2, WIDTH, generator=torch.Generator().manual_seed(1)) if prefix else None
    added = Pass(adapters(backbone).adapters, soft)
    if hasattr(backbone.model, "final_logits_bias"):  # a random BART repeats its start mark, which is its end mark
        backbone.model.final_logits_bias[:, list(backbone.text.special)] = -1e4
    ids, mask = encode(backbone, TEXTS)
    written = torch.zeros(3, 0, dtype=torch.long)
    with torch.no_grad():
        for _ in range(GREEDY["max_tokens"]):
            target = torch.cat([written, torch.zeros(3, 1, dtype=torch.long)], dim=1)  # the last one is not looked at
            best = backbone.target_logits(ids, mask, target, added)[:, -1].argmax(dim=-1)
            written = torch.cat([written, best[:, None]], dim=1)
    expected = [backbone.text.plain(row) for row in written.tolist()]
    assert backbone.generate(ids, mask, added, **GREEDY) == expected
    assert len({tuple(row) for row in expected}) > 1  # the input has a say


@pytest.mark.parametrize("family", GENERATORS)
def test_a_checkpoints_own_generation_settings_have_no_say(family):
    from tiny import tiny_path
    from transformers import GenerationConfig

    from tss.backbones.load import load_backbone

    path = tiny_path(family)
    odd = GenerationConfig(min_length=7, forced_bos_token_id=9, repetition_penalty=5.0, suppress_tokens=[20, 21])
    kept = (path / "generation_config.json").read_text()
    try:
        odd.save_pretrained(path)
        backbone = load_backbone(str(path))
    finally:
        (path / "generation_config.json").write_text(kept)
    ids, mask = encode(backbone, TEXTS)
    plain = tiny_loaded(family).generate(ids, mask, Pass(), **GREEDY)
    assert backbone.generate(ids, mask, Pass(), **GREEDY) == plain


@pytest.mark.parametrize("family", GENERATORS)
def test_beams_and_limits(family):
    backbone = tiny_loaded(family)
    ids, mask = encode(backbone, TEXTS)
    out = backbone.generate(ids, mask, Pass(), max_tokens=12, min_tokens=6, beams=3, no_repeat=2)
    assert out == backbone.generate(ids, mask, Pass(), max_tokens=12, min_tokens=6, beams=3, no_repeat=2)
    for row in out:
        assert len(row) <= 12
        assert backbone.text.special.isdisjoint(row)
        pairs = list(zip(row, row[1:], strict=False))
        if family in DECODERS:  # the others write special tokens in between, which are left out
            assert len(row) >= 6
            assert len(pairs) == len(set(pairs)), "a pair of tokens came twice"


@pytest.mark.parametrize("family", ENCODER_DECODERS)
def test_beams_write_what_the_model_alone_writes_and_copy_no_encoder_states(family, monkeypatch):
    from transformers import DynamicCache, GenerationConfig

    backbone, moved = tiny_loaded(family), []
    plain = DynamicCache.reorder_cache
    monkeypatch.setattr(DynamicCache, "reorder_cache", lambda self, rows: (moved.append(self), plain(self, rows)))
    ids, mask = encode(backbone, TEXTS)
    out = backbone.generate(ids, mask, Pass(), max_tokens=16, min_tokens=8, beams=4, no_repeat=2)
    ours = len(moved)
    config = GenerationConfig(
        num_beams=4,
        early_stopping=True,
        max_new_tokens=16,
        min_new_tokens=8,
        no_repeat_ngram_size=2,
        pad_token_id=backbone.text.pad,
        eos_token_id=backbone.text.end,
        decoder_start_token_id=backbone.start,
    )
    alone = backbone.model.generate(input_ids=ids, attention_mask=mask, generation_config=config)
    assert out == [backbone.text.plain(row) for row in alone[:, 1:].tolist()]
    assert ours > 0 and len(moved) - ours == 2 * ours, "what beams wrote is put in order, what they read is not"


@pytest.mark.parametrize("family", FAMILIES)
def test_prefix_keeps_states_in_line(family):
    """As many states as tokens, each at its token; the prefix changes them, the padding behind still does not."""
    backbone = tiny_loaded(family)
    ids, mask = encode(backbone, TEXTS[:2], length=20)
    soft = torch.randn(2, 3, WIDTH, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        plain = backbone.states(ids, mask, Pass())
        prefixed = backbone.states(ids, mask, Pass(prefix=soft))
        assert prefixed.shape == plain.shape
        assert not torch.allclose(prefixed, plain, atol=1e-2)
        short = encode(backbone, TEXTS[1:2])
        alone = backbone.states(*short, Pass(prefix=soft[1:]))[0]
        torch.testing.assert_close(prefixed[1, : len(alone)], alone, atol=1e-4, rtol=1e-4)
        changed = ids.clone()
        changed[0, 4] = backbone.text.tokens("film")[0]
        again = backbone.states(changed, mask, Pass(prefix=soft))
    moved = (again[0] - prefixed[0]).abs().amax(dim=-1) > 1e-6
    if family in DECODERS:  # causal: the states before the changed token stay, the one at it moves
        assert not moved[:4].any() and moved[4]
    else:
        assert moved.all()


@pytest.mark.parametrize("family", [*ENCODERS, *DECODERS])
def test_the_states_of_the_prefix_itself_are_left_out(family):
    backbone = tiny_loaded(family)
    ids, mask = encode(backbone, TEXTS[:1])
    soft = torch.randn(1, 3, WIDTH, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        vectors = torch.cat([soft, backbone.model.get_input_embeddings()(ids)], dim=1)
        whole = backbone.model.base_model(inputs_embeds=vectors)[0]
        torch.testing.assert_close(backbone.states(ids, mask, Pass(prefix=soft)), whole[:, 3:])


@pytest.mark.parametrize("family", ENCODER_DECODERS)
def test_decoder_states_are_shifted_right(family):
    """The state at i was fed the tokens before i; token i reaches it through the encoder alone."""
    backbone = tiny_loaded(family)
    ids, mask = encode(backbone, TEXTS[:1])
    fed = []
    handle = backbone.model.get_decoder().register_forward_pre_hook(
        lambda m, args, kwargs: fed.append(kwargs["input_ids"]), with_kwargs=True
    )
    backbone.states(ids, mask, Pass())
    handle.remove()
    assert fed[0][0].tolist() == [backbone.start, *ids[0, :-1].tolist()]
    assert backbone.start == (0 if family == "t5" else backbone.text.end)


@pytest.mark.parametrize("family", DECODERS)
def test_decoder_only_sees_source_separator_target(family):
    backbone = tiny_loaded(family)
    ids, mask = encode(backbone, TEXTS)
    target = torch.tensor([backbone.text.target("good", 12)] * 3)
    fed = {}
    backbone.model.register_forward_pre_hook(lambda m, args, kwargs: fed.update(kwargs), with_kwargs=True)
    logits = backbone.target_logits(ids, mask, target, Pass())
    assert logits.shape[:2] == target.shape
    for i in range(3):
        row = fed["input_ids"][i][fed["attention_mask"][i] == 1].tolist()
        source = ids[i][mask[i] == 1].tolist()
        assert row == [*source, backbone.text.separator, *target[i, :-1].tolist()]
        positions = fed["position_ids"][i][fed["attention_mask"][i] == 1].tolist()
        assert positions == list(range(len(row)))


@pytest.mark.parametrize("family", ENCODERS)
def test_an_encoder_cannot_generate(family):
    backbone = tiny_loaded(family)
    ids, mask = encode(backbone, TEXTS)
    with pytest.raises(BackboneError, match="encoder"):
        backbone.generate(ids, mask, Pass(), **GREEDY)
    with pytest.raises(BackboneError, match="encoder"):
        backbone.target_logits(ids, mask, ids, Pass())


@pytest.mark.parametrize("family", FAMILIES)
def test_longest_is_what_the_model_can_take(family):
    """At `longest` tokens the model answers; one more it could not."""
    backbone = tiny_loaded(family)
    if family == "t5":
        assert backbone.longest is None
        return
    assert backbone.longest == POSITIONS
    ids = torch.full((1, POSITIONS), backbone.text.tokens("great")[0])
    with torch.no_grad():
        assert torch.isfinite(backbone.states(ids, torch.ones_like(ids), Pass())).all()
    if family in ("roberta", "bart", "gpt2"):
        ids = torch.full((1, POSITIONS + 1), int(ids[0, 0]))
        with pytest.raises((IndexError, RuntimeError)):
            backbone.states(ids, torch.ones_like(ids), Pass())


@pytest.mark.parametrize("family", FAMILIES)
def test_fingerprint_is_of_weights_buffers_and_tokenizer(family):
    backbone = tiny_loaded(family)
    before = backbone.fingerprint()
    assert before == tiny_loaded(family).fingerprint()
    assert all(not p.requires_grad for p in backbone.model.parameters())
    tensor = next(reversed(backbone.tensors().values()))
    with torch.no_grad():
        tensor.view(-1)[-1:] += 1
    assert backbone.fingerprint() != before


def test_hash_of_tensors_sees_names_types_shapes_and_bytes():
    tensors = {"a": torch.zeros(2, 3), "b": torch.zeros(0)}
    same = hash_tensors({"b": torch.zeros(0), "a": torch.zeros(2, 3)})
    assert hash_tensors(tensors) == same
    others = [
        {**tensors, "a": torch.zeros(3, 2)},
        {**tensors, "a": torch.zeros(2, 3, dtype=torch.int32)},
        {**tensors, "a": -torch.zeros(2, 3)},
        {"a": tensors["a"], "c": tensors["b"]},
    ]
    assert len({same, *(hash_tensors(other) for other in others)}) == 5
    assert hash_tensors({"a": torch.arange(6).view(2, 3).T}) == hash_tensors(
        {"a": torch.arange(6).view(2, 3).T.contiguous()}
    )
