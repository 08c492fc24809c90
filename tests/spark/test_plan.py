"""Plan: what is in scope, what a dry run says, and how the work is cut."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from lakelabel.plan import Counts
from lakelabel.planning import preview
from lakelabel.sizing import cut, tokens_a_shard
from lakelabel_udfs.engines.fake import fake_label
from tests.road import TASK, Road

LABELS = tuple(TASK["labels"])


def test_scope_follows_where_limit_and_a_key_of_several_columns(road: Road) -> None:
    """`where` and `--limit` bound the scope (of the lowest doc_hash), and ids of several columns cannot run together."""
    rows = [("a", "bc", 1, "one"), ("ab", "c", 1, "two"), ("a", None, 1, "three"), ("x", "y", 2, "four")]
    road.write(rows, "k1 STRING, k2 STRING, n INT, body STRING")
    road.settings["source"].update({"id": ["k1", "k2"], "text": "Body: {{ body }}", "where": "n < 2 -- only these"})
    report = road.run()
    assert road.labels() == {
        '["a","bc"]': fake_label("Body: one", LABELS),
        '["ab","c"]': fake_label("Body: two", LABELS),
    }
    assert list(road.open_failures().values()) == ["missing_doc_id"]
    assert report["documents"]["source"] == 3

    road.settings["source"].update({"id": "k1", "where": None, "text": "{{ body }}!"})
    lowest = road.sql("SELECT k1 FROM {documents} GROUP BY k1 ORDER BY xxhash64(k1) LIMIT 2")
    assert road.run(limit=2)["documents"]["source"] == 2
    seen = {*road.labels(), *road.open_failures()}
    assert seen == {row["k1"] for row in lowest}


def test_a_dry_run_writes_nothing_and_says_what_a_run_would_do(road: Road) -> None:
    """Documents, tokens and shards without tables; hours and cost once a rate and a price are known."""
    road.write([("a", "one " * 50), ("b", "one " * 50), ("c", "")])
    told = preview(road.spark, road.job())
    assert not (road.folder / "out").exists()
    assert (told.documents["pending"], told.documents["infer"], told.documents["copies"], told.shards) == (3, 1, 1, 3)
    assert (told.tokens, told.hours, told.cost) == (50, None, None)

    road.run("engine.extra={milliseconds_per_document: 50}")
    road.write([("d", "new " * 50)])
    before = road.versions("runs")
    told = preview(road.spark, road.job("cost.price_per_slot_hour=3600"))
    assert told.documents["infer"] == 1
    assert told.hours is not None and told.cost is not None
    assert abs(told.cost - told.hours * 3600) < 1e-9
    assert road.versions("runs") == before
    assert road.inferred() == 1


def test_a_plan_is_made_on_one_cluster_and_labelled_on_another(road: Road) -> None:
    """`plan` leaves a ready run with a queue; `classify` goes on from it, reading the source no more."""
    import shutil

    road.write([("a", "one"), ("b", "two"), ("c", "")])
    planned = road.run(plan_only=True)
    assert planned["documents"]["remaining"] == 3
    assert road.inferred() == 0
    assert road.run(plan_only=True)["run_id"] == planned["run_id"]
    job = road.job()
    shutil.rmtree(road.folder / "documents")
    from lakelabel.run import classify

    report = classify(road.spark, job, road.reporter).as_dict()
    assert report["run_id"] == planned["run_id"]
    labels = {row["doc_id"]: row["label"] for row in road.sql("SELECT * FROM {labels}")}
    assert labels == {"a": fake_label("one", LABELS), "b": fake_label("two", LABELS)}


buckets = st.lists(st.tuples(st.integers(1, 50), st.integers(0, 500)), max_size=60)


@given(buckets, st.integers(1, 2000), st.booleans(), st.integers(0, 3))
def test_shards_cover_the_whole_range_once(sizes: list[tuple[int, int]], target: int, rules: bool, copies: int) -> None:
    """Infer shards are contiguous, cover all of doc_hash, hold every document once, and pass the target by no more than
    a bucket; ids are unique."""
    counts = Counts(
        by_rule=int(rules),
        copies=copies,
        buckets=[(index * 7 - 200, n, tokens) for index, (n, tokens) in enumerate(sizes)],
    )
    shards = cut(counts, target)
    infer = [shard for shard in shards if shard.kind == "infer"]
    assert sum(shard.documents for shard in infer) == sum(n for n, _ in sizes)
    assert sum(shard.tokens for shard in infer) == sum(tokens for _, tokens in sizes)
    if sizes:
        assert (infer[0].lo, infer[-1].hi) == (-(2**63), 2**63 - 1)
        assert all(left.hi + 1 == right.lo for left, right in itertools.pairwise(infer))
    assert all(shard.tokens <= max(target, *(tokens for _, tokens in sizes)) for shard in infer)
    assert len({shard.shard_id for shard in shards}) == len(shards)
    assert [s.kind for s in shards if s.kind != "infer"] == ["rule"] * rules + ["copy"] * (copies > 0)


def test_shards_are_sized_by_time() -> None:
    """180 s of one engine; at least four a slot, unless they would be shorter than 30 s."""
    assert tokens_a_shard(Counts(tokens=10**9), rate=1000, slots=1) == 180_000
    assert tokens_a_shard(Counts(tokens=200_000), rate=1000, slots=1) == 50_000
    assert tokens_a_shard(Counts(tokens=5_000), rate=1000, slots=1) == 30_000
