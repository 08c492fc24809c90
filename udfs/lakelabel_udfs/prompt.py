"""The prompt from token ids: a fixed head, the document, a fixed tail. Nothing in a document can touch the other two."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from lakelabel_udfs.chat import answer_ending, around_document, whole
from lakelabel_udfs.engines.protocol import BadPrompt, BadSettings
from lakelabel_udfs.outcome import Failure
from lakelabel_udfs.plaintext import PlainTokenizer
from lakelabel_udfs.scoring import LabelTrie
from lakelabel_udfs.specs import EngineSpec, PromptSpec

logger = logging.getLogger(__name__)

Encode = Callable[[str], list[int]]

_CHARACTERS_PER_TOKEN = 8
"""First guess of the characters that fill the budget, so that a megabyte is cut before it is tokenised."""

_MARGIN = 64
"""Tokens beyond the budget at which a text is known to overflow: cutting it changes only the tokens of its last word."""

_PROBES = (
    "The quarterly invoice is due on 30 June 2024; please pay 1,250.00 EUR.",
    "Der Vertrag verlängert sich jeweils um ein Jahr, sofern er nicht gekündigt wird.",
    "Le présent manuel décrit l'installation, étape par étape.",
    "请在三十天内支付发票。谢谢",
    "السلام عليكم ورحمة الله",
    "def f(x):\n    return x ** 2\n\nprint(f(3))",
)


@dataclass(frozen=True)
class Prompt:
    """A prompt bound to a tokenizer. ``head`` + a document + ``tail`` are the ids of one request.

    ``tail`` ends with the answer prefix and with what all labels begin with; ``trie`` goes on from there. ``budget``
    is how many tokens a document may have: ``max_model_len``, the context, less head, tail, the longest path of the trie, and the
    one token that the engine writes.
    """

    head: tuple[int, ...]
    tail: tuple[int, ...]
    trie: LabelTrie
    budget: int
    max_model_len: int
    overflow: str
    plain: PlainTokenizer

    @classmethod
    def of(cls, tokenizer: Any, spec: PromptSpec, max_model_len: int) -> Prompt:
        """Build the prompt with a transformers tokenizer that has a ``tokenizers`` backend.

        Raises BadPrompt where the prompt cannot work with it, BadSettings for a tokenizer without such a backend.
        """
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is None:
            raise BadSettings("engine.model: its tokenizer has no fast version; use a model with a tokenizer.json")

        def encode(text: str) -> list[int]:
            return list(tokenizer.encode(text, add_special_tokens=False))

        plain = PlainTokenizer(backend)
        _refuse_control(tokenizer, encode, plain, spec)
        before, after = around_document(tokenizer, spec)
        head = encode(before)
        if not tokenizer.chat_template and list(tokenizer.encode("a"))[:1] == [tokenizer.bos_token_id]:
            head = [tokenizer.bos_token_id, *head]  # a template writes it by itself
        # The tail follows a document: some tokenizers would put a space before one that stands alone.
        tail, end = (_following(encode, "a", text) or encode(text) for text in (after, answer_ending(tokenizer, spec)))
        trie = LabelTrie.of(spec.label_names, _label_tokens(encode, after, spec.label_names), end[0], spec.scoring)
        tail += trie.opening
        own = len(head) + len(tail) + trie.depth + 1
        if max_model_len <= own:
            raise BadPrompt(
                f"engine.max_model_len is {max_model_len}; the prompt's own tokens are {own} (instruction, labels, "
                f"descriptions, examples) and leave no room for a document: give at least {own + 1}, "
                "better several hundred more, or shorten the task"
            )
        prompt = cls(tuple(head), tuple(tail), trie, max_model_len - own, max_model_len, spec.overflow, plain)
        unlike = [
            text for text in _PROBES if prompt.ids(plain.encode([text])[0]) != prompt.whole_ids(tokenizer, spec, text)
        ]
        if unlike:
            logger.warning(
                "in %d of %d probes this tokenizer joins the document's last or first characters with the prompt's, "
                "which the assembled prompt does not; labels are well defined either way",
                len(unlike),
                len(_PROBES),
            )
        return prompt

    def prepare(self, texts: Sequence[str]) -> list[list[int] | Failure]:
        """The document ids of each text: at most ``budget``, at least one, none of an added token.

        Outer whitespace does not count. A blank text is ``empty``; one over the budget is ``too_long``, or is cut to
        exactly the budget where the overflow policy says head, tail or head_tail. Never raises for a text.
        """
        clean = [_valid(text).strip() for text in texts]
        size = _CHARACTERS_PER_TOKEN * (self.budget + _MARGIN)
        starts = self.plain.encode([text[:size] for text in clean])
        return [self._fitted(text, ids, size) for text, ids in zip(clean, starts, strict=True)]

    def _fitted(self, text: str, ids: list[int], size: int) -> list[int] | Failure:
        """ids: those of the first ``size`` characters of ``text``."""
        while len(ids) < self.budget + _MARGIN and size < len(text):
            size *= 4
            (ids,) = self.plain.encode([text[:size]])
        if not ids:
            return Failure("empty", "the text is blank")
        if len(ids) <= self.budget:
            return ids
        if self.overflow == "quarantine":
            some = "at least " if size < len(text) else ""
            return Failure(
                "too_long",
                f"the document has {some}{len(ids)} tokens, and {self.budget} fit "
                f"(a context of {self.max_model_len} less {self.max_model_len - self.budget} for the prompt)",
            )
        if self.overflow == "head":
            return ids[: self.budget]
        last = self._last(text)
        if self.overflow == "tail":
            return last[-self.budget :]
        first = (self.budget + 1) // 2
        return ids[:first] + last[len(last) - (self.budget - first) :]

    def _last(self, text: str) -> list[int]:
        """The ids of the end of an overlong text, more than the budget."""
        size = _CHARACTERS_PER_TOKEN * (self.budget + _MARGIN)
        (ids,) = self.plain.encode([text[-size:]])
        while len(ids) < self.budget + _MARGIN and size < len(text):
            size *= 4
            (ids,) = self.plain.encode([text[-size:]])
        return ids

    def ids(self, document: Sequence[int], path: Sequence[int] = ()) -> list[int]:
        """The ids of one request."""
        return [*self.head, *document, *self.tail, *path]

    def whole_ids(self, tokenizer: Any, spec: PromptSpec, text: str) -> list[int]:
        """The ids of the chat template applied to the whole prompt of one text: what ``ids`` is compared with."""
        text = whole(tokenizer, spec, text)
        return [*tokenizer.encode(text, add_special_tokens=not tokenizer.chat_template), *self.trie.opening]

    def cacheable(self, block_size: int) -> int:
        """How many tokens of the head whole blocks of a prefix cache can hold."""
        return len(self.head) // block_size * block_size


def load_tokenizer(spec: EngineSpec) -> Any:
    """The engine's tokenizer, by transformers; needs no model weights and no vllm."""
    # Here, since transformers takes seconds to import and the fake engine does without.
    from transformers import AutoTokenizer

    trust = bool(json.loads(spec.extra).get("trust_remote_code"))
    return AutoTokenizer.from_pretrained(spec.model, revision=spec.revision, trust_remote_code=trust)


def _valid(text: str) -> str:
    """``text`` with lone surrogates, which no tokenizer takes, replaced."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text


def _refuse_control(tokenizer: Any, encode: Encode, plain: PlainTokenizer, spec: PromptSpec) -> None:
    """Raise BadPrompt if a text of the task's author holds a control token, which the head would turn into control."""
    texts = [("task.instruction", spec.instruction), ("task.answer_prefix", spec.answer_prefix)]
    for place, label in enumerate(spec.labels):
        texts.append((f"task.labels[{place}].name", label.name))
        texts.append((f"task.labels[{place}].description", label.description))
    texts += [(f"task.examples[{place}].text", text) for place, (text, _) in enumerate(spec.examples)]
    for key, text in texts:
        control = (number for number in encode(text) if number in plain.control_ids and number != plain.unknown)
        found = next(control, None)
        if found is not None:
            raise BadPrompt(
                f"{key} contains {tokenizer.convert_ids_to_tokens(found)!r}, a control token of this model; "
                "write it differently, with a space inside for instance"
            )


def _label_tokens(encode: Encode, after: str, names: Sequence[str]) -> list[list[int]]:
    """For each label the tokens that continue the prompt. A space goes before it, unless the prompt ends in one or in
    a newline, as it does without an answer prefix: then the model begins with the label itself."""
    space = "" if after[-1:].isspace() else " "
    sequences = []
    for name in names:
        tokens = _following(encode, after, space + name)
        if tokens is None:
            raise BadPrompt(
                f"task.labels: with {name!r} after it, this tokenizer splits the answer prefix differently; "
                "end task.answer_prefix in punctuation, such as 'Label:', or rename the label"
            )
        sequences.append(tokens)
    return sequences


def _following(encode: Encode, before: str, text: str) -> list[int] | None:
    """The ids of ``text`` where it follows ``before``; None if the two do not part between tokens."""
    start, whole = encode(before), encode(before + text)
    return whole[len(start) :] if whole[: len(start)] == start else None
