"""Tokenizer, stream, windows and noise of pretraining."""

from __future__ import annotations

import lzma

import numpy as np
import pytest
import torch

from tss.backbones import corpus, denoise
from tss.backbones.corpus import BOS, EOS, MASK
from tss.backbones.recipe import Recipe, batch
from tss.errors import BackboneError

DOCUMENTS = [f"Film number {i} was good. I liked it very much! Did you? We saw it {i % 7} times." for i in range(300)]


@pytest.fixture(scope="module")
def tokenizer():
    return corpus.train_tokenizer(DOCUMENTS, 400)


@pytest.fixture(scope="module")
def text(tokenizer) -> denoise.Text:
    return denoise.Text.on("cpu", corpus.encode_documents(tokenizer, DOCUMENTS), corpus.sentence_ends(tokenizer))


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(3)


@pytest.mark.parametrize("sentence", ["Film 3 was good.", "naïve café — “quoted” 日本 🙂", "two  spaces", "a"])
def test_round_trip_through_a_saved_tokenizer(tokenizer, tmp_path, sentence):
    from transformers import AutoTokenizer

    corpus.save_tokenizer(tokenizer, tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    ids = loaded(sentence).input_ids
    assert ids == corpus.load_tokenizer(tmp_path).encode(sentence).ids == tokenizer.encode(sentence).ids
    assert ids[0] == BOS and ids[-1] == EOS
    assert loaded.decode(ids, skip_special_tokens=True) == sentence


def test_special_ids(tokenizer, tmp_path):
    from transformers import AutoTokenizer

    corpus.save_tokenizer(tokenizer, tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    names = (loaded.bos_token_id, loaded.pad_token_id, loaded.eos_token_id, loaded.unk_token_id, loaded.mask_token_id)
    assert names == (0, 1, 2, 3, 4)
    assert MASK in loaded("I <mask> it").input_ids


def test_a_word_has_one_token_wherever_it_stands(tokenizer):
    assert tokenizer.encode("good").ids[1:-1] == tokenizer.encode("was good").ids[2:-1]


def test_documents_are_held_out_and_xz_is_read(tmp_path):
    plain, packed = tmp_path / "a.txt", tmp_path / "b.txt.xz"
    plain.write_text("\n".join(DOCUMENTS[:150]), "utf-8")
    packed.write_bytes(lzma.compress("\n".join(DOCUMENTS[150:]).encode()))
    training, held_out = corpus.read_documents([plain, packed])
    assert held_out == DOCUMENTS[::100] and len(training) == 297 and not set(training) & set(held_out)


def test_unusable_corpora_are_explained(tmp_path):
    (tmp_path / "empty.txt").write_text("", "utf-8")
    (tmp_path / "bad.txt").write_bytes(b"\xff\xfe\n")
    (tmp_path / "bad.txt.xz").write_bytes(b"not xz")
    for name, message in (
        ("empty.txt", "0 documents"),
        ("bad.txt", "UTF-8"),
        ("bad.txt.xz", "xz"),
        ("no.txt", "no.txt"),
    ):
        with pytest.raises(BackboneError, match=message):
            corpus.read_documents([tmp_path / name])


def test_cut_short_only_adds_ends(tokenizer):
    stream = corpus.encode_documents(tokenizer, DOCUMENTS)
    cut = corpus.cut_short(stream, corpus.sentence_ends(tokenizer), 0.5, seed=1)
    assert cut.dtype == np.uint16 and 1.1 < (cut == BOS).sum() / len(DOCUMENTS) < 4
    assert (cut == BOS).sum() == (cut == EOS).sum() and cut[0] == BOS and cut[-1] == EOS
    assert np.array_equal(cut[(cut != BOS) & (cut != EOS)], stream[(stream != BOS) & (stream != EOS)])


def test_windows_begin_at_sentences_and_end_with_the_end(text):
    windows = denoise.draw_windows(text, 64, 48, generator())
    assert windows.shape == (64, 48)
    assert (windows[:, 0] == BOS).all() and (windows[:, -1] == EOS).all()
    stream = text.stream.tolist()
    starts = {tuple(stream[s : s + 5]) for s in text.starts.tolist()}
    inside = [tuple(row[1:6]) for row in windows.tolist()]
    assert sum(row in starts for row in inside) >= 62  # but for the ones at the very end of the stream


@pytest.mark.parametrize("length", [32, 256, 1024])
def test_spans_hide_what_they_should(length):
    hidden, first = denoise.draw_spans(1000, length, generator())
    total, spans = denoise.hidden_tokens(length)
    assert (hidden.sum(1) == total).all() and (first.sum(1) == spans).all()
    assert abs(hidden.float().mean() - 0.3) < 0.03 and 2.5 < total / spans < 3.5
    assert not hidden[:, 0].any() and not hidden[:, -1].any() and hidden[first].all()
    begins = hidden & ~hidden.roll(1, dims=1)
    assert torch.equal(begins, first)  # no two spans touch
    where = hidden[:, 1:-1].float().mean(0)
    assert where.std() < 0.05  # everywhere alike


def test_masking_in_place_moves_nothing(text):
    windows = denoise.draw_windows(text, 8, 64, generator())
    hidden, _ = denoise.draw_spans(8, 64, generator())
    masked = denoise.mask_in_place(windows, hidden)
    assert torch.equal(masked[~hidden], windows[~hidden]) and (masked[hidden] == MASK).all()


def test_infilling_leaves_one_mask_a_span(text):
    windows = denoise.draw_windows(text, 8, 64, generator())
    hidden, first = denoise.draw_spans(8, 64, generator())
    noised = denoise.infill(windows, hidden, first)
    assert noised.shape == (8, denoise.infilled_length(64))
    for row in range(8):
        tokens = zip(windows[row].tolist(), hidden[row], first[row], strict=True)
        expected = [MASK if begins else token for token, inside, begins in tokens if begins or not inside]
        assert noised[row].tolist() == expected


def test_sentences_are_shuffled_within_their_text(tokenizer, text):
    windows = denoise.draw_windows(text, 200, 90, generator())
    shuffled = denoise.shuffle_sentences(windows, text.ends, 0.5, generator())
    moved = (shuffled != windows).any(1)
    assert 0.3 < moved.float().mean() < 0.7
    for before, after in zip(windows[moved][:20].tolist(), shuffled[moved][:20].tolist(), strict=True):
        assert [i for i, t in enumerate(before) if t in (BOS, EOS)] == [
            i for i, t in enumerate(after) if t in (BOS, EOS)
        ]
        assert sorted(before) == sorted(after)
        written = " ".join(map(str, after))
        assert all(" ".join(map(str, sentence)) in written for sentence in finished_sentences(tokenizer, before))
    assert torch.equal(denoise.shuffle_sentences(windows, text.ends, 0.0, generator()), windows)


def finished_sentences(tokenizer, ids: list[int]) -> list[list[int]]:
    ends = corpus.sentence_ends(tokenizer)
    found: list[list[int]] = [[]]
    for token in ids:
        if token in (BOS, EOS):
            found[-1] = []
        else:
            found[-1].append(token)
            if ends[token]:
                found.append([])
    return found[:-1]


def test_decoder_input_is_shifted_and_blind(text):
    windows = denoise.draw_windows(text, 64, 64, generator())
    seeing = denoise.decoder_input(windows, 0.0, generator())
    assert (seeing[:, 0] == EOS).all() and torch.equal(seeing[:, 1:], windows[:, :-1])
    assert (denoise.decoder_input(windows, 1.0, generator()) == MASK).all()
    assert abs((denoise.decoder_input(windows, 0.4, generator()) == MASK).float().mean() - 0.4) < 0.05


def test_batches_follow_the_curriculum(text):
    recipe = Recipe(
        tokens_per_step=1024, lengths=((64, 0.5), (128, 0.5)), blind=10, in_place=20, seeing=30, in_place_share=0.0
    )
    early, blind, target = batch(recipe, text, 5, 0.0)
    assert early.shape == target.shape == (16, 64) and (blind == MASK).all()
    shapes = {batch(recipe, text, step, 0.5)[0].shape for step in range(30, 60)}
    assert shapes == {(16, denoise.infilled_length(64)), (8, denoise.infilled_length(128))}
    again, other = batch(recipe, text, 40, 0.5), batch(recipe, text, 40, 0.5, worker=1, workers=2)
    assert all(torch.equal(a, b) for a, b in zip(again, batch(recipe, text, 40, 0.5), strict=True))
    assert other[2].shape[0] * 2 == again[2].shape[0]
