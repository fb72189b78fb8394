"""The text a backbone is pretrained on: documents, the tokenizer learnt from them, and one long stream of token ids.

A corpus is one or more UTF-8 files with one document a line, plain or compressed by xz. Every hundredth document is
held out: neither the tokenizer nor the model sees it, so the loss on it is a loss on unseen text.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from tss.errors import BackboneError

SPECIAL_TOKENS = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
BOS, PAD, EOS, UNK, MASK = range(5)
HELD_OUT_EVERY = 100
TOKENIZER_CHARACTERS = 60_000_000  # more text than this does not change a vocabulary of a few thousand entries


def read_documents(corpus: Sequence[Path]) -> tuple[list[str], list[str]]:
    """All documents of the files in `corpus`, as (for training, held out).

    Raises: BackboneError if a file is missing or unreadable, or if there are too few documents to hold any out.
    """
    with ThreadPoolExecutor() as pool:  # lzma releases the interpreter lock, so the shards decompress side by side
        documents = [document for lines in pool.map(_lines, corpus) for document in lines]
    if len(documents) < 2:
        raise BackboneError(
            f"the corpus {', '.join(str(path) for path in corpus)} has {len(documents)} documents; "
            "give text files with one document a line"
        )
    held_out = documents[::HELD_OUT_EVERY]
    training = [document for i, document in enumerate(documents) if i % HELD_OUT_EVERY]
    return training, held_out


def _lines(path: Path) -> list[str]:
    try:
        data = path.read_bytes()
        text = (lzma.decompress(data) if path.suffix == ".xz" else data).decode("utf-8")
    except OSError as error:
        raise BackboneError(f"cannot read the corpus file {path}: {error.strerror}; check the path") from error
    except lzma.LZMAError as error:
        raise BackboneError(f"the corpus file {path} is not valid xz data; copy or compress it again") from error
    except UnicodeDecodeError as error:
        raise BackboneError(
            f"the corpus file {path} is not UTF-8 at byte {error.start}; convert it to UTF-8"
        ) from error
    return [line for line in text.split("\n") if line.strip()]


def train_tokenizer(documents: Sequence[str], vocab_size: int) -> Tokenizer:
    """A byte-level BPE tokenizer with at most `vocab_size` entries; ids 0 to 4 are `SPECIAL_TOKENS`.

    A text is encoded as `<s> … </s>`. The first word is read as if a space stood before it, so that a word has the
    same token at the start of a text and inside it; decoding takes that space away again.
    """
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", BOS), ("</s>", EOS)]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    characters = sum(len(document) for document in documents)
    every = max(1, -(-characters // TOKENIZER_CHARACTERS))
    tokenizer.train_from_iterator(documents[::every], trainer)
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True)])  # "a <mask>" holds no stray space
    return tokenizer


def save_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """Write `tokenizer.json` and `tokenizer_config.json` so that `AutoTokenizer.from_pretrained(folder)` loads them."""
    content = json.loads(tokenizer.to_str())
    content["model"]["merges"] = [" ".join(pair) for pair in content["model"]["merges"]]  # a third smaller on disk
    (folder / "tokenizer.json").write_text(json.dumps(content, ensure_ascii=False, separators=(",", ":")), "utf-8")
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": 1024,
        "add_prefix_space": True,
        "clean_up_tokenization_spaces": False,
        "bos_token": "<s>",
        "cls_token": "<s>",
        "eos_token": "</s>",
        "sep_token": "</s>",
        "pad_token": "<pad>",
        "unk_token": "<unk>",
        "mask_token": "<mask>",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n", "utf-8")


def load_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer that `save_tokenizer` wrote. Raises: BackboneError if the file is not one of ours."""
    try:
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    except Exception as error:  # the library raises bare Exception
        raise BackboneError(f"{folder / 'tokenizer.json'} is not a tokenizer: {error}") from error
    ids = [tokenizer.token_to_id(token) for token in SPECIAL_TOKENS]
    if ids != list(range(len(SPECIAL_TOKENS))):
        raise BackboneError(f"{folder / 'tokenizer.json'}: ids of {' '.join(SPECIAL_TOKENS)} are {ids}, not 0 to 4")
    return tokenizer


def encode_documents(tokenizer: Tokenizer, documents: Sequence[str], chunk: int = 4096) -> np.ndarray:
    """The documents as one stream `<s> … </s> <s> … </s> …` of token ids (uint16)."""
    pieces: list[np.ndarray] = []
    for begin in range(0, len(documents), chunk):
        encoded = tokenizer.encode_batch_fast(list(documents[begin : begin + chunk]))
        pieces.extend(np.asarray(encoding.ids, dtype=np.uint16) for encoding in encoded)
    return np.concatenate(pieces)


def sentence_ends(tokenizer: Tokenizer) -> np.ndarray:
    """For each token id, whether a sentence may end with it (bool, [vocabulary])."""
    size = tokenizer.get_vocab_size()
    ends = np.zeros(size, dtype=bool)
    for token, index in tokenizer.get_vocab().items():
        ends[index] = token.rstrip("\"')]").endswith((".", "!", "?"))
    return ends


def cut_short(stream: np.ndarray, ends: np.ndarray, share: float, seed: int) -> np.ndarray:
    """Cut a `share` of the documents in `stream` into texts of a few sentences, each `<s> … </s>`; some end mid-way.

    The tasks that come later have texts of one sentence as often as of one page, and some are cut off at a length
    limit; without this the model would see few texts that end before their hundredth token or where no sentence does.
    """
    generator = np.random.default_rng(seed)
    document = np.cumsum(stream == BOS) - 1
    chosen = generator.random(int(document[-1]) + 1) < share
    after = np.append(stream[1:], EOS)
    chance = np.where(ends[stream], 0.5, 0.01)
    cut = (
        chosen[document] & (stream != BOS) & (stream != EOS) & (after != EOS) & (generator.random(len(stream)) < chance)
    )
    places = np.repeat(np.flatnonzero(cut) + 1, 2)
    return np.insert(stream, places, np.tile(np.array([EOS, BOS], dtype=stream.dtype), len(places) // 2))
