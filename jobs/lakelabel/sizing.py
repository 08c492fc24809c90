"""How the work of a plan is cut: shards are ranges of doc_hash, sized by time."""

from __future__ import annotations

import math

from lakelabel.plan import BUCKET_BITS, Counts
from lakelabel.shards import RULE_SHARD, Shard
from lakelabel.tables import HIGHEST, LOWEST


def cut(counts: Counts, shard_tokens: int) -> list[Shard]:
    """The shards of a plan: ranges of doc_hash that hold about ``shard_tokens`` each and cover all of it.

    Rules are shard 0; copies come last.
    """
    infer: list[Shard] = []
    low, n, tokens = LOWEST, 0, 0
    for bucket, bucket_documents, bucket_tokens in counts.buckets:
        if n and tokens + bucket_tokens > shard_tokens:
            first = bucket << (64 - BUCKET_BITS)
            infer.append(Shard(len(infer) + 1, "infer", low, first - 1, n, tokens))
            low, n, tokens = first, 0, 0
        n += bucket_documents
        tokens += bucket_tokens
    if n:
        infer.append(Shard(len(infer) + 1, "infer", low, HIGHEST, n, tokens))
    rule = Shard(RULE_SHARD, "rule", LOWEST, HIGHEST, counts.by_rule, 0)
    copy = Shard(len(infer) + 1, "copy", LOWEST, HIGHEST, counts.copies, 0)
    return [shard for shard in (rule, *infer, copy) if shard.documents]


def tokens_a_shard(counts: Counts, rate: float, slots: int, shard_seconds: float = 180.0) -> int:
    """How many tokens a shard should hold: ``shard_seconds`` of one engine at ``rate`` tokens/s, at least four shards a
    slot unless they would be shorter than 30 s."""
    by_time = rate * shard_seconds
    by_slots = max(counts.tokens / (4 * slots), rate * 30.0)
    return max(1, math.ceil(min(by_time, by_slots)))
