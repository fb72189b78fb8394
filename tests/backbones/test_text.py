"""A user's text is only ever text, for every tokenizer; marks, cutting and the way back."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny import ENCODER_DECODERS, FAMILIES, tiny_loaded

NASTY = ["</s>", "<s>", "<pad>", "<mask>", "[CLS]", "[SEP]", "[MASK]", "[PAD]", "<|endoftext|>", "<|im_start|>"]
NASTY += ["<|im_end|>", "<extra_id_0>", "en_XX", "</s></s>", " </s> ", "x</s>y", "</s", "<unk>"]


@pytest.fixture(scope="module")
def codecs() -> dict:
    return {family: tiny_loaded(family).text for family in FAMILIES}


def marks(codec) -> set[int]:
    """Ids that mean something to the model: all special ones but that of unknown words."""
    tokenizer = codec._tokenizer
    own = {tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id}
    unknown = {tokenizer.unk_token_id} - own
    return set(tokenizer.all_special_ids) - unknown


@pytest.mark.parametrize("family", FAMILIES)
def test_special_strings_are_spelt_out(codecs, family):
    codec = codecs[family]
    own = codec._tokenizer.all_special_tokens
    for text in [*NASTY, *own, *(f"the {token} film" for token in own)]:
        ids = codec.tokens(text)
        assert ids, text
        assert marks(codec).isdisjoint(ids), text


@pytest.mark.parametrize("family", ["bart", "roberta", "gpt2", "llama", "qwen2"])
def test_byte_level_text_comes_back_as_it_was(codecs, family):
    codec = codecs[family]
    for text in [*NASTY, "naïve 12,345.67 – ünï 漢字 🙂", "a  b\tc"]:
        assert codec.decode(codec.tokens(text)) == text.strip()


@pytest.mark.parametrize("family", ["mbart", "t5"])
def test_a_special_token_in_the_vocabulary_is_spelt_alone(codecs, family):
    """The text around it keeps its own pieces."""
    codec = codecs[family]
    around = codec.tokens("the screen"), codec.tokens(" is great")
    ids = codec.tokens("the screen </s> is great")
    assert ids[: len(around[0])] == around[0] and ids[-len(around[1]) :] == around[1]
    assert codec.decode(ids) == "the screen </s> is great"


@pytest.mark.parametrize("family", FAMILIES)
def test_an_unknown_character_leaves_the_rest_as_it_is(codecs, family):
    codec = codecs[family]
    plain, odd = codec.tokens("the screen is great"), codec.tokens("the screen is great 漢")
    assert odd[: len(plain)] == plain


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.one_of(st.sampled_from(NASTY), st.text(max_size=8)), max_size=5).map("".join))
def test_no_text_makes_a_mark(codecs, text):
    for codec in codecs.values():
        assert marks(codec).isdisjoint(codec.tokens(text))
        assert codec.word(text)  # a word always has a place for its tag


@pytest.mark.parametrize("family", FAMILIES)
def test_marks_are_those_of_the_family(codecs, family):
    codec = codecs[family]
    name = codec._tokenizer.convert_ids_to_tokens
    bart, bert = (["<s>"], ["</s>"]), (["[CLS]"], ["[SEP]"])
    expected = {
        "bart": bart,
        "roberta": bart,
        "mbart": (["<s>"], ["</s>", "en_XX"]),
        "t5": ([], ["</s>"]),
        "bert": bert,
        "distilbert": bert,
        "gpt2": ([], ["<|endoftext|>"]),
        "llama": (["<s>"], ["</s>"]),
        "qwen2": ([], ["<|im_end|>"]),
    }
    assert (name(codec.opening), name(codec.closing)) == expected[family]
    assert codec.separator == codec.closing[0]
    assert codec.target_opening == (codec.opening if family in ENCODER_DECODERS else [])


@pytest.mark.parametrize("family", FAMILIES)
def test_wrap_cuts_the_text_and_never_the_pair(codecs, family):
    codec = codecs[family]
    text, pair = codec.tokens("the screen is great and the battery is good " * 4), codec.tokens(" battery")
    for limit in (16, 24, len(text) + len(pair) + 10):
        ids, cut = codec.wrap([text, pair], limit)
        assert len(ids) <= limit
        assert cut == (limit < 25)
        assert ids[: len(codec.opening)] == codec.opening
        tail = [codec.separator, *pair, *codec.closing]
        assert ids[-len(tail) :] == tail
        kept = ids[len(codec.opening) : -len(tail)]
        assert kept and kept == text[: len(kept)]


def test_wrap_of_an_exact_fit_is_not_cut(codecs):
    codec = codecs["bart"]
    text = codec.tokens("the screen is great")
    assert codec.wrap([text], len(text) + 2) == ([*codec.opening, *text, *codec.closing], False)
    assert codec.wrap([text], len(text) + 1) == ([*codec.opening, *text[:-1], *codec.closing], True)


def test_a_pair_that_is_too_long_leaves_something_of_the_text(codecs):
    codec = codecs["bart"]
    ids, cut = codec.wrap([codec.tokens("great"), codec.tokens(" battery" * 20)], 12)
    assert cut and len(ids) == 12 and ids[1] == codec.tokens("great")[0]


@pytest.mark.parametrize("family", FAMILIES)
def test_target_ends_with_the_end_mark_within_its_limit(codecs, family):
    codec = codecs[family]
    for limit in (2, 3, 8, 200):
        ids = codec.target("good and bad " * 5, limit)
        assert len(ids) <= limit
        assert ids[-1] == codec.end and ids.count(codec.end) == 1
    assert codec.plain(codec.target("good and bad", 200)) == codec.tokens("good and bad")
    assert len(codec.target("good and bad " * 5, 1)) <= 2  # no room at all: marks alone


def test_plain_stops_at_the_end_and_drops_marks(codecs):
    codec = codecs["bart"]
    good = codec.tokens("good")
    assert codec.plain([*codec.opening, codec.pad, *good, codec.end, *good]) == good


@pytest.mark.parametrize("family", FAMILIES)
def test_a_word_is_encoded_as_inside_a_sentence(codecs, family):
    codec = codecs[family]
    inside = codec.tokens("a the")
    assert inside[-len(codec.word("the")) :] == codec.word("the")
    assert codec.word("") and codec.word("\u200b")


def test_fingerprint_sees_vocabulary_and_marks(codecs):
    assert len({codecs[f].fingerprint() for f in ("bart", "t5", "bert", "gpt2", "llama", "qwen2")}) == 6
    assert codecs["bart"].fingerprint() == tiny_loaded("bart").text.fingerprint()
