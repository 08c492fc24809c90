"""Turn a GGUF file into a model folder that transformers and vLLM read: weights, tokenizer, chat template.

Run inside the environment: `python -m tools.setup.convert MODEL.gguf FOLDER`. The folder must not exist.

The weights are written in float32. A block of the file is a half-precision scale (and offset) times a small integer, which
float32 holds exactly and bfloat16 does not (7 of its 11 significant bits would go). An engine may still round when it loads.
"""

from __future__ import annotations

import sys
from pathlib import Path


def convert(gguf: Path, folder: Path) -> None:
    """Write `folder` from `gguf`, then read it back and check what an engine relies on.

    Raises ValueError where the file declares a pre-tokenizer other than SmolLM's, or where the folder that was written lost
    the chat template, the end token or the tokenizer's splitting of digits.
    """
    # All three take seconds to import and live only in the environment that setup makes.
    import torch
    from gguf import GGUFReader
    from tokenizers import pre_tokenizers
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    declared = GGUFReader(gguf).fields["tokenizer.ggml.pre"].contents()
    if declared != "smollm":
        raise ValueError(f"{gguf.name} declares the pre-tokenizer {declared!r}; only 'smollm' is known here")

    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    # transformers restores a plain byte-level pre-tokenizer whatever the file declares. SmolLM also cuts every digit off
    # first, which changes the ids of a number that follows two spaces.
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, quantization_config=GgufConfig(dequantize=True), dtype=torch.float32
    )
    del model.config._model_name_or_path  # the file's title for itself, which is no path
    tokenizer.model_max_length = model.config.max_position_embeddings  # a GGUF tokenizer has none

    folder.mkdir(parents=True)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    for written in folder.iterdir():
        written.chmod(0o644)  # safetensors writes for its owner alone; executors may run as someone else
    _check(folder, tokenizer)


def _check(folder: Path, original: object) -> None:
    """Compare the written folder with the tokenizer it was written from."""
    from transformers import AutoConfig, AutoTokenizer, GenerationConfig

    written = AutoTokenizer.from_pretrained(folder)
    probe = [{"role": "user", "content": "Invoice 2024-0017\n\ntotal:  1234.50 EUR, naïve <|im_end|>"}]
    same_ids = written.apply_chat_template(probe, add_generation_prompt=True, return_dict=False) == (
        original.apply_chat_template(probe, add_generation_prompt=True, return_dict=False)  # type: ignore[attr-defined]
    )
    end = written.convert_tokens_to_ids("<|im_end|>")
    checks = {
        "the chat template gives other ids than before": same_ids,
        "digits are no longer single tokens": written.tokenize("x  2024")[-5:] == ["ĠĠ", "2", "0", "2", "4"],
        "the tokenizer's end token is not <|im_end|>": written.eos_token_id == end,
        "the generation settings do not end at <|im_end|>": GenerationConfig.from_pretrained(folder).eos_token_id
        == end,
        "the vocabulary is larger than the weights": len(written) <= AutoConfig.from_pretrained(folder).vocab_size,
    }
    broken = [what for what, good in checks.items() if not good]
    if broken:
        raise ValueError(f"the model written to {folder} is not usable: " + "; ".join(broken))


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
