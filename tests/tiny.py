"""Tiny random backbones of every family, with tokenizers made in memory: a model folder in a fraction of a second.

`tiny_path(family)` is a folder kept for the whole run, `tiny_loaded(family)` the backbone in it, fresh at every call.
The models are random, but drawn wide enough that every layer matters and no two outputs are alike.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

FAMILIES = ("bart", "mbart", "t5", "bert", "roberta", "distilbert", "gpt2", "llama", "qwen2")
ENCODER_DECODERS = ("bart", "mbart", "t5")
ENCODERS = ("bert", "roberta", "distilbert")
DECODERS = ("gpt2", "llama", "qwen2")
POSITIONS = 64
WIDTH, LAYERS, HEADS, INNER = 16, 2, 2, 32

SENTENCES = [
    "the screen is great and the battery is good",
    "a poor film with bad sound but nice pictures",
    "John Smith went to Paris and met Anna at the bank",
    "the market fell on Monday, said the minister in London",
    "book a table for two at the restaurant, please",
    "The train leaves at 10:45 (platform 3). What a day!",
]


def tiny_backbone(folder: str | Path, family: str) -> Path:
    """Write the model folder `tiny-<family>` inside `folder`, if it is not there, and return it."""
    path = Path(folder) / f"tiny-{family}"
    if not (path / "config.json").exists():
        from transformers import PreTrainedTokenizerFast
        from transformers.utils import logging

        logging.disable_progress_bar()
        tokenizer, names = _TOKENIZERS[family]()
        wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)
        wrapped.save_pretrained(path)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            _model(family, wrapped).save_pretrained(path)
    return path


@cache
def _folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="tiny-backbones-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def tiny_path(family: str) -> Path:
    """The folder of a tiny backbone, made once a run."""
    return tiny_backbone(_folder(), family)


def tiny_loaded(family: str, places: str = "ffn"):
    """A tiny backbone, loaded as a user's would be."""
    from tss.backbones.load import load_backbone

    return load_backbone(str(tiny_path(family)), places=places)


# Vocabularies are written out rather than trained: trainers do not promise the same result twice.
WORDS = sorted({word for sentence in SENTENCES for word in sentence.replace(",", " ").split() if word.isalpha()})
LETTERS = sorted({letter for sentence in SENTENCES for letter in sentence if letter != " "} | set("<>/[]|_"))


def _byte_level(special: list[str]) -> Tokenizer:
    """A byte-level BPE that knows the beginnings of our words: any text can be spelt, nothing is unknown."""
    tokens = dict.fromkeys([*special, *sorted(pre_tokenizers.ByteLevel.alphabet())])
    merges = []
    for word in WORDS:
        piece = "\u0120"  # how a blank is written
        for letter in word[:3]:
            if piece + letter not in tokens:
                merges.append((piece, letter))
                tokens[piece + letter] = None
            piece += letter
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(special)
    return tokenizer


def _pieces(special: list[str]) -> Tokenizer:
    """A Unigram vocabulary as of sentencepiece, in which special tokens are pieces like any other."""
    pieces = [(token, 0.0) for token in special] + [("\u2581" + word, -4.0) for word in WORDS]
    pieces += [(letter, -8.0) for letter in ["\u2581", *LETTERS]]
    tokenizer = Tokenizer(models.Unigram(pieces, special.index("<unk>")))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens(special)
    return tokenizer


def _word_pieces(special: list[str]) -> Tokenizer:
    words = {word.lower() for word in WORDS}
    letters = {letter.lower() for letter in LETTERS}
    tokens = dict.fromkeys([*special, *sorted(letters), *sorted("##" + letter for letter in letters), *sorted(words)])
    tokenizer = Tokenizer(models.WordPiece({token: i for i, token in enumerate(tokens)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_special_tokens(special)
    return tokenizer


def _roberta_like() -> tuple[Tokenizer, dict[str, str]]:
    tokenizer = _byte_level(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    names = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
    return tokenizer, {**names, "mask_token": "<mask>", "cls_token": "<s>", "sep_token": "</s>"}


def _mbart_like() -> tuple[Tokenizer, dict[str, str]]:
    tokenizer = _pieces(["<s>", "<pad>", "</s>", "<unk>", "<mask>", "en_XX"])
    tokenizer.post_processor = processors.TemplateProcessing("$A </s> en_XX", None, [("</s>", 2), ("en_XX", 5)])
    names = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
    return tokenizer, {**names, "mask_token": "<mask>", "additional_special_tokens": ["en_XX"]}


def _t5_like() -> tuple[Tokenizer, dict[str, str]]:
    tokenizer = _pieces(["<pad>", "</s>", "<unk>", "<extra_id_0>"])
    tokenizer.post_processor = processors.TemplateProcessing("$A </s>", "$A </s> $B </s>", [("</s>", 1)])
    names = {"eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
    return tokenizer, {**names, "additional_special_tokens": ["<extra_id_0>"]}


def _bert_like() -> tuple[Tokenizer, dict[str, str]]:
    tokenizer = _word_pieces(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    tokenizer.post_processor = processors.TemplateProcessing(
        "[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", [("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return tokenizer, {**names, "mask_token": "[MASK]"}


def _gpt2_like() -> tuple[Tokenizer, dict[str, str]]:
    tokenizer = _byte_level(["<|endoftext|>"])
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer, {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>", "unk_token": "<|endoftext|>"}


def _llama_like() -> tuple[Tokenizer, dict[str, str]]:
    tokenizer = _byte_level(["<s>", "</s>"])
    tokenizer.post_processor = processors.TemplateProcessing("<s> $A", "<s> $A <s> $B", [("<s>", 0)])
    return tokenizer, {"bos_token": "<s>", "eos_token": "</s>"}


def _qwen2_like() -> tuple[Tokenizer, dict[str, str]]:
    tokenizer = _byte_level(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    names: dict[str, Any] = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
    return tokenizer, {**names, "additional_special_tokens": ["<|im_start|>"]}


_TOKENIZERS: dict[str, Callable[[], tuple[Tokenizer, dict[str, Any]]]] = {
    "bart": _roberta_like,
    "roberta": _roberta_like,
    "mbart": _mbart_like,
    "t5": _t5_like,
    "bert": _bert_like,
    "distilbert": _bert_like,
    "gpt2": _gpt2_like,
    "llama": _llama_like,
    "qwen2": _qwen2_like,
}


def _model(family: str, tokenizer) -> torch.nn.Module:
    """A random model; encoders as their hub checkpoints are, with a language-model head and no pooler."""
    import transformers as hf

    marks = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
    marks["pad_token_id"] = tokenizer.pad_token_id
    vocabulary = {"vocab_size": len(tokenizer), **marks}
    wide = {"initializer_range": 0.2, "hidden_size": WIDTH, "num_hidden_layers": LAYERS, "intermediate_size": INNER}
    wide |= {"num_attention_heads": HEADS, "max_position_embeddings": POSITIONS}
    pair = {"d_model": WIDTH, "encoder_layers": LAYERS, "decoder_layers": LAYERS, "init_std": 0.2}
    pair |= {f"{side}_ffn_dim": INNER for side in ("encoder", "decoder")}
    pair |= {f"{side}_attention_heads": HEADS for side in ("encoder", "decoder")}
    pair |= {"max_position_embeddings": POSITIONS, "decoder_start_token_id": tokenizer.eos_token_id}
    makers: dict[str, Callable[[], torch.nn.Module]] = {
        "bart": lambda: hf.BartForConditionalGeneration(hf.BartConfig(**vocabulary, **pair)),
        "mbart": lambda: hf.MBartForConditionalGeneration(hf.MBartConfig(**vocabulary, **pair)),
        "t5": lambda: hf.T5ForConditionalGeneration(
            hf.T5Config(
                **vocabulary, d_model=WIDTH, d_kv=WIDTH // HEADS, d_ff=INNER, num_layers=LAYERS, num_heads=HEADS,
                initializer_factor=3.0, decoder_start_token_id=0,
            )
        ),
        "bert": lambda: hf.BertForMaskedLM(hf.BertConfig(**vocabulary, **wide)),
        "roberta": lambda: hf.RobertaForMaskedLM(
            hf.RobertaConfig(**vocabulary, **{**wide, "max_position_embeddings": POSITIONS + 2})
        ),
        "distilbert": lambda: hf.DistilBertForMaskedLM(
            hf.DistilBertConfig(
                **vocabulary, dim=WIDTH, hidden_dim=INNER, n_layers=LAYERS, n_heads=HEADS, initializer_range=0.2,
                max_position_embeddings=POSITIONS,
            )
        ),
        "gpt2": lambda: hf.GPT2LMHeadModel(
            hf.GPT2Config(
                **vocabulary, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS, n_inner=INNER, n_positions=POSITIONS,
                initializer_range=0.2,
            )
        ),
        "llama": lambda: hf.LlamaForCausalLM(hf.LlamaConfig(**vocabulary, **wide, num_key_value_heads=1)),
        "qwen2": lambda: hf.Qwen2ForCausalLM(hf.Qwen2Config(**vocabulary, **wide, num_key_value_heads=1)),
    }  # fmt: skip
    return _livelier(makers[family]())


def _livelier(model: torch.nn.Module) -> torch.nn.Module:
    """Norms that differ from one another, and strong cross-attention.

    Else one norm could be taken for another, and a random decoder with tied embeddings repeats its last token for ever.
    """
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1 and ("norm" in name.lower() or "ln_" in name):
                parameter.add_(0.2 * torch.randn_like(parameter))
            elif "encoder_attn.v_proj" in name or "encoder_attn.out_proj" in name:
                parameter.mul_(4)
    return model
