"""Text to token ids and back, the same way for every tokenizer.

A user's text is only ever text: a string that looks like a special token (`</s>`, `[SEP]`, `<mask>`) is spelt out.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

MOST_WORDS = 100_000  # remembered, so that a server's memory stays flat


class TextCodec:
    """One tokenizer, with the marks that open, separate and close a sequence."""

    def __init__(self, tokenizer, config, family: str):
        self._tokenizer = tokenizer
        self._words: dict[str, list[int]] = {}  # words come again and again
        self.special = frozenset(tokenizer.all_special_ids)
        marks = (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id)
        # A word outside the vocabulary is text as well; but where "unknown" is the end mark too, it is a mark.
        self._marks_only = self.special - ({tokenizer.unk_token_id} - set(marks))
        if getattr(tokenizer, "is_fast", False):
            tokenizer.backend_tokenizer.encode_special_tokens = True  # spell special tokens out
        first, last = self._marks()
        end = tokenizer.eos_token_id if tokenizer.eos_token_id is not None else config.eos_token_id
        self.end: int = end[0] if isinstance(end, list) else end if end is not None else last[-1]
        if not first and family == "encoder-decoder" and tokenizer.bos_token_id is not None:
            first = [tokenizer.bos_token_id]
        self.opening: list[int] = first
        self.closing: list[int] = last or [self.end]
        self._one_row = family == "decoder"
        self.target_opening = self.opening if family == "encoder-decoder" else []
        self.separator: int = self.closing[0]
        self.pad: int = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else self.end

    def _marks(self) -> tuple[list[int], list[int]]:
        """What the tokenizer itself puts before and after a text."""
        whole = self._tokenizer("a").input_ids
        inner = self._tokenizer("a", add_special_tokens=False).input_ids
        for i in range(len(whole) - len(inner) + 1):
            if whole[i : i + len(inner)] == inner:
                return whole[:i], whole[i + len(inner) :]
        return [], []

    def tokens(self, text: str) -> list[int]:
        """Ids of plain text; no special id is ever among them, unless that of unknown words."""
        ids = self._tokenizer(text, add_special_tokens=False, split_special_tokens=True, verbose=False).input_ids
        if self._marks_only.isdisjoint(ids):
            return ids
        return [j for i in ids for j in (self._spelt(i) if i in self._marks_only else [i])]

    def _spelt(self, mark: int) -> list[int]:
        """A vocabulary may hold a special token as an ordinary piece: then its characters, one by one."""
        letters = self._tokenizer.convert_tokens_to_ids(list(self._tokenizer.convert_ids_to_tokens(mark)))
        return [i for i in letters if i is not None and i not in self._marks_only]

    @property
    def _unknown(self) -> int | None:
        return self._tokenizer.unk_token_id

    def word(self, word: str) -> list[int]:
        """Ids of one word of a sentence, as it stands after a blank; never empty."""
        ids = self._words.get(word)
        if ids is None:
            ids = self.tokens(" " + word) or self.tokens(word)
            ids = ids or [self._unknown if self._unknown is not None else self.pad]
            if len(self._words) < MOST_WORDS:
                self._words[word] = ids
        return list(ids)

    def wrap(self, parts: Sequence[list[int]], limit: int) -> tuple[list[int], bool]:
        """One sequence `opening part separator part … closing` of at most `limit` ids, and whether it was cut.

        The first part is cut, never the others (unless they alone are too long).
        """
        tail: list[int] = []
        for part in parts[1:]:
            tail += [self.separator, *part]
        room = limit - len(self.opening) - len(self.closing)
        kept_tail = tail[: max(room - 1, 0)]
        kept = parts[0][: max(room - len(kept_tail), 1)]
        cut = len(kept) < len(parts[0]) or len(kept_tail) < len(tail)
        return [*self.opening, *kept, *kept_tail, *self.closing], cut

    def source(self, text: str, limit: int) -> tuple[list[int], bool]:
        """Ids of a text that another is to be made from, and whether it was cut.

        A decoder reads source, separator, target in one row, so there the source has no closing of its own.
        """
        if not self._one_row:
            return self.wrap([self.tokens(text)], limit)
        ids, cut = self.wrap([self.tokens(text)], limit + len(self.closing))
        return ids[: -len(self.closing)], cut

    def target(self, text: str, limit: int) -> list[int]:
        """Ids that a decoder is to produce: the text and the end mark, at most `limit` ids."""
        words = self.tokens(text)[: max(limit - len(self.target_opening) - 1, 0)]
        return [*self.target_opening, *words, self.end]

    def plain(self, ids: Sequence[int]) -> list[int]:
        """Ids up to the first end mark, without padding and other special ids."""
        out = []
        for i in ids:
            if i == self.end:
                break
            if i not in self.special:
                out.append(i)
        return out

    def decode(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False).strip()

    def fingerprint(self) -> str:
        vocabulary = json.dumps(sorted(self._tokenizer.get_vocab().items()), ensure_ascii=True)
        marks = json.dumps([self.opening, self.closing, self.separator, self.end, self.pad])
        # The vocabulary alone does not fix the splitting, so a fixed text is split as well.
        sample = json.dumps(self.tokens("The 1st naïve test: isn't it (so) </s> GOOD?\n\tA b  c 12,345.67 ünï"))
        return hashlib.sha256((vocabulary + marks + sample).encode()).hexdigest()
