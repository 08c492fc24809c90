"""Are the scores those of the model? Compares the engine's log-probabilities with transformers' logits on this device.

    python benchmarks/scores.py [--model FOLDER] [--dtype float32]

For 1, 5 and 128 labels and for a trie. Without a model a tiny random one is made. In float32 the tolerance is 1e-3; in
16 bits, where the two programs round in different places, it is 0.15. The last line is a JSON object; exit code 1 over
the tolerance. On a GPU float32 is computed without TF32 on both sides, where the libraries obey.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.tiny_model import make_model, single_token_words
from lakelabel_udfs.outcome import Prediction
from lakelabel_udfs.prompt import Prompt
from lakelabel_udfs.scoring import Walk
from lakelabel_udfs.specs import EngineSpec, LabelSpec, PromptSpec
from lakelabel_udfs.window import label_stream

TOLERANCE = {"float32": 1e-3, "bfloat16": 0.15, "float16": 0.15}
DOCUMENTS = (
    "Invoice no. 4711: please pay 1,250.00 EUR by 30 June.",
    "The tenant shall return the keys on the last day of the term.",
    "Ten years of experience in logistics; fluent in Spanish.",
    "Schließen Sie das Gerät niemals an, bevor der Deckel zu ist.",
    "x",
)
TRIE = ("credit", "credit note", "credit card", "debit note", "debit card", "statement", "contract", "contractor")

Reference = Callable[[Sequence[int]], Sequence[float]]


def prompt_of(labels: Sequence[str], prompt_version: str = "check") -> PromptSpec:
    """A prompt with these labels."""
    return PromptSpec(prompt_version, "Name the kind of the document.", tuple(LabelSpec(name) for name in labels))


def cases(tokenizer: Any) -> dict[str, PromptSpec]:
    """The prompts to compare, by name."""
    words = single_token_words(tokenizer, 128)
    return {"1": prompt_of(words[:1]), "5": prompt_of(words[:5]), "128": prompt_of(words), "trie": prompt_of(TRIE)}


def reference(model_folder: str, dtype: str) -> Reference:
    """The log-probabilities of the next token after some ids, over the whole vocabulary, by transformers."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.backends.cuda.matmul.allow_tf32 = False
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = AutoModelForCausalLM.from_pretrained(model_folder, dtype=getattr(torch, dtype)).to(device).eval()

    def logprobs(ids: Sequence[int]) -> Sequence[float]:
        with torch.inference_mode():
            logits = model(torch.tensor([list(ids)], device=device)).logits[0, -1]
        return logits.double().log_softmax(-1).tolist()

    return logprobs


def expected(prompt: Prompt, document: Sequence[int], logprobs: Reference) -> Prediction:
    """What the labels' scores should be, by the reference."""
    walk = Walk(prompt.trie)
    while queries := walk.queries():
        for query in queries:
            row = logprobs(prompt.ids(document, query.path))
            answer: Mapping[int, float] = {token: row[token] for token in query.candidates}
            walk.tell(query, answer)
    outcome = walk.outcome((0, 0, 0))
    assert isinstance(outcome, Prediction)
    return outcome


def differences(engine: Any, logprobs: Reference) -> Iterator[tuple[float, float]]:
    """For each document the largest difference of a label's score, and that of the label mass."""
    outcomes = dict(label_stream(engine, iter([(text, text) for text in DOCUMENTS])))
    for text, prepared in zip(DOCUMENTS, engine.prepare(DOCUMENTS), strict=True):
        want, got = expected(engine.prompt, prepared, logprobs), outcomes[text]
        if not isinstance(got, Prediction):
            yield math.inf, math.inf
            continue
        assert want.label_mass is not None
        assert got.label_mass is not None
        yield (
            max(abs(a - b) for a, b in zip(want.scores, got.scores, strict=True)),
            abs(want.label_mass - got.label_mass),
        )


def main() -> int:
    """Compare, print a table and one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="folder of a model with a chat template; default: a tiny random one")
    parser.add_argument("--dtype", choices=sorted(TOLERANCE), default="float32")
    arguments = parser.parse_args()

    from lakelabel_udfs.engines.vllm import LoadedVllm

    with tempfile.TemporaryDirectory() as folder:
        model = arguments.model or str(make_model(Path(folder)))
        spec = EngineSpec(
            "vllm", model, "check", None, max_model_len=2048, extra=json.dumps({"dtype": arguments.dtype})
        )
        loaded, logprobs = LoadedVllm(spec), reference(model, arguments.dtype)
        tolerance, worst = TOLERANCE[arguments.dtype], 0.0
        print(f"{loaded.name}, {arguments.dtype}, tolerance {tolerance}")
        for name, prompt in cases(loaded.tokenizer).items():
            found = list(differences(loaded.bind(prompt), logprobs))
            score, mass = (max(column) for column in zip(*found, strict=True))
            worst = max(worst, score, mass)
            print(f"{name:>5} labels: score {score:.1e}, label mass {mass:.1e}")
        loaded.close()
    print(json.dumps({"max_abs_diff": worst, "tolerance": tolerance, "dtype": arguments.dtype, "engine": loaded.name}))
    return int(worst > tolerance)


if __name__ == "__main__":
    sys.exit(main())
