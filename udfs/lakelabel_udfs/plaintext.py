"""Documents to token ids by a private copy of the tokenizer that knows no added token, so that a document is only ever text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import chain, pairwise
from typing import Any

_ANCHOR = "\n"
"""What a document follows in the prompt. Encoded along with it and taken off again, since some tokenizers put a space
before a text that stands alone."""

_ROUNDS = 8
"""How often a text is cut to keep an added token out; then what is left of such tokens is dropped."""


class PlainTokenizer:
    """A tokenizer for documents.

    Every added token is removed from the copy, whether it is marked special or not, so that ``<|im_end|>`` and
    ``</think>`` in a document are the characters that they look like. ``control_ids`` are the ids of those tokens;
    should the base vocabulary spell one of them as well, the text is cut inside it until it does not.

    Not among them are added tokens that are not special and are only letters, digits and space: words and runs of
    spaces by which some families extend their vocabulary, without meaning for the chat. ``unknown`` is the id of what
    the vocabulary cannot spell, None where it spells everything.
    """

    def __init__(self, backend: Any) -> None:
        """backend: a ``tokenizers.Tokenizer``; it is not changed."""
        # Here, so that the driver can import what refers to this module without the library.
        from tokenizers import Tokenizer

        state = json.loads(backend.to_str())
        state.update(added_tokens=[], post_processor=None, truncation=None, padding=None)
        self._plain: Any = Tokenizer.from_str(json.dumps(state))
        added = backend.get_added_tokens_decoder()
        self.control_ids = frozenset(number for number, token in added.items() if _is_control(token))
        self.unknown: int | None = self._plain.token_to_id(getattr(self._plain.model, "unk_token", None) or "")
        self._anchor: list[int] = self._plain.encode(_ANCHOR, add_special_tokens=False).ids

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text, without any control id. Texts must be valid Unicode; any length, any content."""
        anchored = self._plain.encode_batch_fast([_ANCHOR + text for text in texts], add_special_tokens=False)
        return [self._document(text, encoding.ids) for text, encoding in zip(texts, anchored, strict=True)]

    def _document(self, text: str, anchored: list[int]) -> list[int]:
        if not self.control_ids.isdisjoint(anchored):
            anchored = self._cut(_ANCHOR + text)
        if anchored[: len(self._anchor)] == self._anchor:
            return anchored[len(self._anchor) :]
        # The anchor melted into the text; then the text's own ids are the better ones.
        ids: list[int] = self._plain.encode(text, add_special_tokens=False).ids
        return ids if self.control_ids.isdisjoint(ids) else self._cut(text)

    def _cut(self, text: str) -> list[int]:
        """The ids of ``text`` in pieces, so cut that no control token stands in one; an unknown character is dropped."""
        pieces = [text]
        for _ in range(_ROUNDS):
            encodings = self._plain.encode_batch(pieces, add_special_tokens=False)
            halves = list(chain.from_iterable(map(self._halves, pieces, encodings)))
            if len(halves) == len(pieces):
                break
            pieces = halves
        ids = chain.from_iterable(
            encoding.ids for encoding in self._plain.encode_batch(pieces, add_special_tokens=False)
        )
        return [number for number in ids if number not in self.control_ids]

    def _halves(self, piece: str, encoding: Any) -> list[str]:
        cuts = [
            start + 1
            for number, (start, end) in zip(encoding.ids, encoding.offsets, strict=True)
            if number in self.control_ids and number != self.unknown and end - start > 1
        ]
        return [piece[start:end] for start, end in pairwise([0, *cuts, len(piece)])]


def _is_control(token: Any) -> bool:
    return bool(token.special) or not all(c.isalnum() or c.isspace() for c in token.content)
