"""A tiny model made on the spot: two random layers, with a real tokenizer or one trained in a moment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def make_tokenizer(additions: tuple[str, ...] = ()) -> Any:
    """A small byte-level tokenizer with a chat template; `additions` are added tokens that are not marked special."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    syllables = [
        first + vowel + last for first in "bcdfghjklmnprstvw" for vowel in "aeiou" for last in ("", "n", "r", "st")
    ]
    words = [one + other for one in syllables for other in syllables[::7]]
    trainer = trainers.BpeTrainer(
        vocab_size=3000,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator([" ".join(words[place::50]) for place in range(50)], trainer)
    backend.add_tokens([AddedToken(text, special=False, normalized=False) for text in additions])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend)
    tokenizer.add_special_tokens({"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"})
    tokenizer.chat_template = _TEMPLATE
    return tokenizer


def make_model(folder: Path, tokenizer_folder: Path | None = None) -> Path:
    """Write a random two-layer model to `folder`, with the tokenizer of `tokenizer_folder` or one trained on the spot.

    The weights are drawn wide, so that probabilities differ by orders of magnitude, as those of a trained model do.
    """
    import torch
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    tokenizer = AutoTokenizer.from_pretrained(tokenizer_folder) if tokenizer_folder else make_tokenizer()
    torch.manual_seed(20)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=8192,
        initializer_range=0.15,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        dtype="float32",
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def single_token_words(tokenizer: Any, number: int) -> list[str]:
    """`number` words that are one token each where a space precedes them."""
    tokens = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    words = [token[1:] for token, _ in tokens if token[:1] == "Ġ" and token[1:].isascii() and token[1:].isalpha()]
    return words[-number:]
