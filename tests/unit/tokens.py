"""A stand-in for a transformers tokenizer around a small real `tokenizers` backend, without importing transformers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")


class TinyTokenizer:
    """Byte-level, with merges for a few words. `plain_additions` are added tokens that are not marked special."""

    bos_token_id: int | None = None
    eos_token = "<|im_end|>"

    def __init__(self, plain_additions: Sequence[str] = (), chat: bool = True) -> None:
        self.chat_template = "chat" if chat else None
        self.backend_tokenizer = byte_level(plain_additions)

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        ids: list[int] = self.backend_tokenizer.encode(text, add_special_tokens=False).ids
        return [self.bos_token_id, *ids] if add_special_tokens and self.bos_token_id is not None else ids

    def decode(self, ids: Sequence[int]) -> str:
        from tokenizers.decoders import ByteLevel

        return str(ByteLevel().decode([self.convert_ids_to_tokens(number) for number in ids]))

    def convert_ids_to_tokens(self, number: int) -> str:
        return str(self.backend_tokenizer.id_to_token(number))

    def apply_chat_template(
        self, messages: Sequence[dict[str, str]], tokenize: bool, add_generation_prompt: bool = False, **variables: Any
    ) -> str:
        assert not tokenize
        turns = "".join(f"<|im_start|>{turn['role']}\n{self.content(turn['content'])}<|im_end|>\n" for turn in messages)
        thinking = "<think>\n\n</think>\n\n" if variables.get("enable_thinking") is False else ""
        return turns + ("<|im_start|>assistant\n" + thinking if add_generation_prompt else "")

    def content(self, text: str) -> str:
        return text


def byte_level(plain_additions: Sequence[str] = (), words: Sequence[str] = (), doublings: int = 0) -> Tokenizer:
    """A byte-level BPE of single bytes and of some whole words (with the space before them).

    doublings: how often runs of spaces double, so that 2 ** doublings of them are one token.
    """
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: number for number, token in enumerate(alphabet)}
    merges = []
    for word in (" credit", " note", " card", " invoice", " bill", "\n\n", *words):
        pieces = list(pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str(word)[0][0])
        whole = pieces[0]
        for piece in pieces[1:]:
            merges.append((whole, piece))
            whole += piece
            vocabulary.setdefault(whole, len(vocabulary))
    for run in ("Ġ" * 2**power for power in range(doublings)):
        merges.append((run, run))
        vocabulary.setdefault(run + run, len(vocabulary))
    backend = Tokenizer(models.BPE(vocabulary, list(dict.fromkeys(merges))))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    backend.add_special_tokens(list(SPECIAL))
    backend.add_tokens([AddedToken(text, special=False, normalized=False) for text in plain_additions])
    return backend
