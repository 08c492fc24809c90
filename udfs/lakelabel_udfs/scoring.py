"""From the probabilities of single tokens to a label: the trie over the labels' tokens, and a document's walk through it.

Pure: no tokenizer, no engine. The labels are given as token sequences, and log-probabilities come as plain floats.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lakelabel_udfs.engines.protocol import BadPrompt
from lakelabel_udfs.outcome import Failure, Outcome, Prediction
from lakelabel_udfs.specs import Scoring

MAX_CANDIDATES = 128
"""Token ids that one request can ask scores for (vLLM's limit)."""

NEGLIGIBLE = 0.01
"""A branch with less than this share of the labels' probability is looked into only if it could change the label."""


@dataclass(frozen=True)
class Node:
    """A point where labels part: ``path`` are the tokens since the root, ``children`` the tokens that may follow.

    A child is a label (its index) or another node.
    """

    path: tuple[int, ...]
    children: Mapping[int, int | Node]
    labels: tuple[int, ...]


@dataclass(frozen=True)
class Query:
    """One request to the engine: the log-probabilities of ``candidates``, after the prompt and ``path``."""

    path: tuple[int, ...]
    candidates: tuple[int, ...]


@dataclass(frozen=True)
class LabelTrie:
    """The labels of a prompt as a tree of tokens in which no label is a prefix of another.

    ``opening`` are the tokens that all labels begin with, to be appended to the prompt itself. ``depth`` is how many
    further tokens the longest request appends. ``source`` is what rows say of their confidence.
    """

    names: tuple[str, ...]
    opening: tuple[int, ...]
    root: Node
    depth: int
    source: str

    @classmethod
    def of(cls, names: Sequence[str], sequences: Sequence[Sequence[int]], end: int, scoring: Scoring) -> LabelTrie:
        """Build the trie.

        sequences: for each name, the tokens that continue the prompt when the model writes it (at least one).
        end: the token that ends an answer; it closes a label that is the beginning of another ("credit", "credit note").

        Raises BadPrompt for labels that share all their tokens, and for ``label_token`` where labels share the first.
        """
        seen: dict[tuple[int, ...], str] = {}
        for name, sequence in zip(names, map(tuple, sequences), strict=True):
            if not sequence:
                raise BadPrompt(f"task.labels: {name!r} has no tokens after the answer prefix; rename it")
            if sequence in seen:
                raise BadPrompt(f"task.labels: {seen[sequence]!r} and {name!r} are the same tokens; rename one")
            seen[sequence] = name
        closed = [
            (*sequence, end)
            if any(other != sequence and other[: len(sequence)] == sequence for other in seen)
            else sequence
            for sequence in seen
        ]
        if len(set(closed)) < len(closed):
            raise BadPrompt("task.labels: two labels differ only by the end of the answer; rename one")
        shared = _common(closed) if len(closed) > 1 else 0
        root = _node(closed, tuple(range(len(closed))), shared, shared)
        flat = all(isinstance(child, int) for child in root.children.values())
        if scoring == "label_token" and not flat:
            branch = next(child for child in root.children.values() if isinstance(child, Node))
            first, second = (names[label] for label in branch.labels[:2])
            raise BadPrompt(
                f"task.scoring is 'label_token', and the labels {first!r} and {second!r} begin with the same token; "
                "rename one, or set task.scoring to auto"
            )
        source = "label_token" if flat and scoring != "trie" else "trie"
        return cls(tuple(names), closed[0][:shared], root, _depth(root), source)

    def queries(self, node: Node) -> list[Query]:
        """What must be asked about one node: as many requests as its children need."""
        tokens = tuple(node.children)
        return [
            Query(node.path, tokens[start : start + MAX_CANDIDATES]) for start in range(0, len(tokens), MAX_CANDIDATES)
        ]


class Walk:
    """One document's way through a trie: ask ``queries`` until there are none, ``tell`` each answer, take ``outcome``.

    **What the scores are.** The first node's log-probabilities are the model's own, over its whole vocabulary. What a
    branch holds is shared among its labels: at a deeper node the children's probabilities are scaled to sum to one,
    for whatever else the model might write there is no label (so are single tokens with no choice taken as certain).
    A label's score is the sum along its path; therefore the scores of all labels sum, as probabilities, to the share
    that the first tokens hold, which is ``label_mass``. Where all labels begin alike it is the share after that
    beginning.

    **What is asked.** Deeper nodes are asked about only if the branch holds at least ``NEGLIGIBLE`` of the labels'
    probability or at least as much as the best single label, so that it could hold the argmax. A branch that is not
    asked about shares what it has evenly among its labels: their scores are then an average, not a measurement, and
    none of them can be the prediction.
    """

    def __init__(self, trie: LabelTrie) -> None:
        self._trie = trie
        self._told: dict[tuple[int, ...], dict[int, float]] = {}
        self._scores: list[float] = [-math.inf] * len(trie.names)
        self._open: list[tuple[Node, float]] = []  # branches not asked about, each with its log-probability
        self._asking: list[tuple[Node, float]] = [(trie.root, 0.0)]
        self._label_mass = 0.0
        self._broken = False

    def queries(self) -> list[Query]:
        """The next round of requests; empty when the outcome stands. Every answer of a round must be told first."""
        if self._told:
            self._settle()
        return [query for node, _ in self._asking for query in self._trie.queries(node)]

    def tell(self, query: Query, logprobs: Mapping[int, float]) -> None:
        """Take one answer: a log-probability for each candidate of ``query`` (more are ignored)."""
        answers = self._told.setdefault(query.path, {})
        for token in query.candidates:
            answers[token] = logprobs.get(token, math.nan)

    def _settle(self) -> None:
        """Turn the answers of a round into scores and branches, and choose what to ask next."""
        for node, held in self._asking:
            answers = self._told[node.path]
            if not all(math.isfinite(logprob) for logprob in answers.values()):
                self._broken, self._asking, self._told = True, [], {}
                return
            total = _log_sum(list(answers.values()))
            if node is self._trie.root:
                self._label_mass = min(1.0, math.exp(total))
                total = 0.0
            for token, child in node.children.items():
                score = held + answers[token] - total
                if isinstance(child, Node):
                    self._open.append((child, score))
                else:
                    self._scores[child] = score
        self._told = {}
        if not self._open:
            self._asking = []
            return
        best = max(self._scores)
        everything = _log_sum([score for score in self._scores if score > -math.inf] + [held for _, held in self._open])
        # Where no single label is known yet, the largest branch takes its place.
        bar = min(everything + math.log(NEGLIGIBLE), best if best > -math.inf else max(held for _, held in self._open))
        self._asking = [branch for branch in self._open if branch[1] >= bar]
        self._open = [branch for branch in self._open if branch[1] < bar]

    def outcome(self, tokens: tuple[int, int, int]) -> Outcome:
        """The prediction, with what it cost (prompt, cached and completion tokens), or ``rejected`` where the engine's scores are missing or not finite."""
        if self._broken:
            return Failure("rejected", "the engine's scores are missing or not finite", *tokens)
        for node, held in self._open:
            for label in node.labels:
                self._scores[label] = held - math.log(len(node.labels))
        return predicted(self._trie.names, self._scores, self._label_mass, self._trie.source, tokens)


def predicted(
    names: Sequence[str],
    scores: Sequence[float],
    label_mass: float | None,
    source: str,
    tokens: tuple[int, int, int],
) -> Prediction:
    """The prediction that finite ``scores`` (log-probabilities, one a name) amount to; of equals the first wins."""
    total = _log_sum(scores)
    shares = [math.exp(score - total) for score in scores]
    best = max(range(len(scores)), key=scores.__getitem__)
    second = max((share for label, share in enumerate(shares) if label != best), default=0.0)
    return Prediction(
        label=names[best],
        confidence=min(1.0, shares[best]),
        margin=max(0.0, min(1.0, shares[best]) - second),
        label_mass=label_mass,
        scores=tuple(scores),
        confidence_source=source,
        prompt_tokens=tokens[0],
        cached_tokens=tokens[1],
        completion_tokens=tokens[2],
    )


def _log_sum(logs: Sequence[float]) -> float:
    """log(sum(exp(logs))), without overflow; ``logs`` is not empty."""
    top = max(logs)
    return top + math.log(math.fsum(math.exp(log - top) for log in logs))


def _common(sequences: Sequence[tuple[int, ...]]) -> int:
    """How many tokens all sequences begin with; none of them is a prefix of another."""
    first, last = min(sequences), max(sequences)
    return next(place for place, (one, other) in enumerate(zip(first, last, strict=False)) if one != other)


def _node(sequences: Sequence[tuple[int, ...]], labels: tuple[int, ...], at: int, start: int) -> Node:
    """The node at which ``labels`` part, which all agree before place ``at``; paths begin at place ``start``."""
    groups: dict[int, list[int]] = {}
    for label in labels:
        groups.setdefault(sequences[label][at], []).append(label)
    children: dict[int, int | Node] = {}
    for token, group in groups.items():
        if len(group) == 1:
            children[token] = group[0]
        else:
            children[token] = _node(sequences, tuple(group), _common([sequences[label] for label in group]), start)
    return Node(sequences[labels[0]][start:at], children, labels)


def _depth(node: Node) -> int:
    below = (_depth(child) for child in node.children.values() if isinstance(child, Node))
    return max(below, default=len(node.path))
