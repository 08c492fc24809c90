"""The prompt as text: what the user says, inside the model's chat template, and the beginning of the answer."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from lakelabel_udfs.engines.protocol import BadPrompt
from lakelabel_udfs.specs import PromptSpec

_OPEN, _CLOSE = "<doc>\n", "\n</doc>"
"""The head ends in the first, the tail begins with the second: a head that ends in a space is tokenised differently
from the whole prompt, one that ends in a newline is not."""

_ANSWER = "b7c3e9"


def user_message(spec: PromptSpec, text: str) -> str:
    """What the user says: instruction, labels, examples, and the document."""
    labels = [
        f"- {label.name}: {label.description}" if label.description else f"- {label.name}" for label in spec.labels
    ]
    answers = [f"{answer_prefix(spec)} {label}".lstrip() for _, label in spec.examples]
    examples = [
        f"{_OPEN}{example.strip()}{_CLOSE}\n{answer}"
        for (example, _), answer in zip(spec.examples, answers, strict=True)
    ]
    return "\n\n".join([spec.instruction.strip(), "\n".join(labels), *examples, f"{_OPEN}{text}{_CLOSE}"])


def answer_prefix(spec: PromptSpec) -> str:
    """The answer prefix without trailing spaces: the space belongs to the label's first token."""
    return spec.answer_prefix.rstrip(" \t")


def whole(tokenizer: Any, spec: PromptSpec, text: str) -> str:
    """The whole prompt of one document. A model without a chat template gets the same pieces as plain text."""
    message = user_message(spec, text)
    if not tokenizer.chat_template:
        return f"{message}\n{answer_prefix(spec)}"
    turns = tokenizer.apply_chat_template(
        [{"role": "user", "content": message}],
        tokenize=False,
        add_generation_prompt=True,
        **dict(spec.chat_template_kwargs),
    )
    return f"{turns}{answer_prefix(spec)}"


def around_document(tokenizer: Any, spec: PromptSpec) -> tuple[str, str]:
    """The prompt's text before and after the document, from the template rendered once around a marker.

    Raises BadPrompt where the template does not repeat the message as it stands.
    """
    marker = "x" + sha256(user_message(spec, "").encode("utf-8", "replace")).hexdigest()[:24]
    before, _, after = whole(tokenizer, spec, marker).partition(marker)
    if marker in after or not before.endswith(_OPEN) or not after.startswith(_CLOSE):
        raise BadPrompt(
            "engine.model: its chat template changes the user's message; use a model or a template that does not"
        )
    return before, after


def answer_ending(tokenizer: Any, spec: PromptSpec) -> str:
    """What ends an answer: the text that the template writes after the assistant's (not every model's end of turn is
    its end of sequence); without a template a newline, which ends the answers of the examples."""
    if not tokenizer.chat_template:
        return "\n"
    turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": _ANSWER}]
    rendered = tokenizer.apply_chat_template(turns, tokenize=False, **dict(spec.chat_template_kwargs))
    return str(rendered).rpartition(_ANSWER)[2] or tokenizer.eos_token or "\n"
