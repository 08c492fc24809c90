"""The demo's corpora and what the demo takes for wrong; its program as a whole runs in `make demo`."""

from __future__ import annotations

import importlib
import re
import sys
from collections import Counter
from pathlib import Path

import pytest

from lakelabel.settings import load
from lakelabel.task import load_task

ROOT = Path(__file__).resolve().parents[2]
# The demo is a program in a folder, not a package: its modules find each other as they do under `python demo`.
sys.path.append(str(ROOT / "demo"))
ask = importlib.import_module("ask")
corpora = importlib.import_module("corpora")
findings = importlib.import_module("findings")

LABELS = {"invoice", "contract", "resume", "manual", "other"}
STANZAS = """\
Package: alpha
Section: games
Description: a game of
 .
 two halves

Package: alpha
Section: games
Description: the same package in an update

Package: beta
Section: contrib/net
Description: a network tool

Package: gamma
Section: net

Package: delta
Section: kernel
Description: of no section that is asked about
""".splitlines()


def report(**documents: int) -> dict[str, dict[str, int]]:
    """A report of a run over ten documents, with some of its counts changed."""
    counts = {"source": 10, "already_labeled": 4, "already_quarantined": 1, "pending": 5, "by_rule": 1, "inferred": 3}
    counts |= {"copied": 1, "remaining": 0, "labeled": 4, "quarantined": 1}
    return {"documents": counts | documents}


def found(**changes: object) -> object:
    """Findings that suit a corpus of two documents and one failure, with some changed."""
    values = {"labels": (("a", 2, 0.5),), "quarantine": (("empty", 1, "no text"),), "labels_version": 3}
    values["answers"] = (("a", "a", 1), ("b", "b", 1))
    return findings.Findings(**(values | changes))


CORPUS = corpora.Corpus("test", Path("conf/local.yml"), ("doc_id", "gold", "lang"), (), {"empty": 1})


def test_bundled_gold_labels_are_the_tasks_labels() -> None:
    """Every gold label of the bundled documents is a label of the demo's task, and each label has at least ten documents."""
    task = load_task(ROOT / "conf/tasks/document_type.yml")
    gold = Counter(document[3] for document in corpora.bundled().documents if document[3] is not None)
    assert set(gold) == {label.name for label in task.labels} == LABELS
    assert min(gold.values()) >= 10


def test_bundled_documents_break_the_rules_they_are_said_to_break() -> None:
    """The failures that the demo expects stand in the documents: ids, texts and lengths as each rule wants them."""
    corpus = corpora.bundled()
    ids = Counter(document[0] for document in corpus.documents)
    texts = {document[0]: f"{document[1]}{document[2]}" for document in corpus.documents}
    repeated = [doc_id for doc_id, n in ids.items() if n > 1 and doc_id is not None]
    limit = load(ROOT / corpus.conf).engine.max_model_len
    assert corpus.failures == {
        "missing_doc_id": ids[None],
        "duplicate_doc_id": len(repeated),
        "empty": sum(not text.strip() for text in texts.values()),
        # No word of the document is less than a token.
        "too_long": sum(len(text.split()) > limit for text in texts.values()),
    }
    assert len({document[1:3] for document in corpus.documents if document[0] == repeated[0]}) == 2
    broken = [d for d in corpus.documents if d[3] is None]
    assert len(broken) == sum(corpus.failures.values()) + 1  # the duplicated id has two rows


def test_bundled_texts_repeat_and_ids_tell_nothing() -> None:
    """Five documents repeat another's text, and every id is a letter and four digits."""
    labelled = [document for document in corpora.bundled().documents if document[3] is not None]
    assert len(labelled) - len({document[1:3] for document in labelled}) == 5
    assert all(document[0][0] == "d" and document[0][1:].isdigit() and len(document[0]) == 5 for document in labelled)


@pytest.mark.parametrize("name", ["local", "debian"])
def test_settings_of_the_demo_are_valid(name: str) -> None:
    """The demo's settings and their task pass the checks of a real run, and source and tables stand apart."""
    settings = load(ROOT / f"conf/{name}.yml")
    assert load_task(settings.task).labels
    assert not settings.tables.root.startswith(settings.source.table)


def test_sections_are_the_labels_of_their_task() -> None:
    """The sections that are sampled are the labels of the Debian task, in its order."""
    task = load_task(ROOT / "conf/tasks/debian_section.yml")
    assert tuple(label.name for label in task.labels) == corpora.SECTIONS


def test_packages_are_read_stanza_by_stanza() -> None:
    """Descriptions are joined over their lines, components are dropped, and a stanza without a description is none."""
    packages = list(corpora.parse_packages(STANZAS))
    assert packages == [
        ("alpha", "a game of two halves", "games"),
        ("alpha", "the same package in an update", "games"),
        ("beta", "a network tool", "net"),
        ("delta", "of no section that is asked about", "kernel"),
    ]


def test_sample_is_the_same_in_any_order() -> None:
    """A sample holds each name once, no more than its share of a section, and does not depend on the order of the lists."""
    many = [(f"p{i}", f"text {i}", "mail") for i in range(100)]
    chosen = corpora.sample([*corpora.parse_packages(STANZAS), *many])
    assert Counter(section for _, _, section in chosen) == {"games": 1, "net": 1, "mail": corpora.PACKAGES_PER_SECTION}
    assert corpora.sample(reversed(many)) == [package for package in chosen if package[2] == "mail"]


def test_debian_without_apt_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine without apt-cache the Debian corpus is refused with a remedy."""
    monkeypatch.setenv("PATH", "")
    with pytest.raises(corpora.NoCorpusError, match="needs a Debian or Ubuntu machine"):
        corpora.debian()


def test_debian_without_lists_says_how_to_get_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where apt has no package lists the Debian corpus is refused with the command that fetches them."""
    apt_cache = tmp_path / "apt-cache"
    apt_cache.write_text("#!/bin/sh\n")
    apt_cache.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(corpora.NoCorpusError, match="apt-get update"):
        corpora.debian()


def test_a_run_as_it_should_be_has_nothing_wrong() -> None:
    """A report whose sums hold, with the expected failures and labels, passes."""
    assert findings.wrong_with_first(report(), found(), CORPUS) == []


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"source": 11}, "source = already_labeled"),
        ({"copied": 0}, "pending = by_rule"),
        ({"labeled": 3}, "= labeled + quarantined"),
        ({"remaining": 1, "pending": 6, "source": 11}, "remaining = 0"),
    ],
)
def test_a_sum_that_does_not_hold_is_wrong(changed: dict[str, int], said: str) -> None:
    """Each of the report's sums is checked, and named when it fails."""
    assert any(said in sentence for sentence in findings.wrong_sums(report(**changed)))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"quarantine": ()}, "quarantine holds {}"),
        ({"answers": (("a", "a", 3), ("b", "b", 1), ("b", None, 1))}, "1 documents that have a gold label"),
        ({"answers": (("a", "a", 2), ("b", "a", 1))}, "no better than always the same answer (2)"),
    ],
)
def test_findings_that_do_not_suit_the_corpus_are_wrong(changed: dict[str, object], said: str) -> None:
    """Other failures than the corpus was made for, a gold document without a label, and useless answers are wrong."""
    (sentence,) = findings.wrong_with_first(report(), found(**changed), CORPUS)
    assert said in sentence


def test_a_second_run_that_works_is_wrong() -> None:
    """A second run that infers, copies or adds a version of `labels` is wrong; one that finds nothing to do is right."""
    idle = dict.fromkeys(("pending", "by_rule", "inferred", "copied", "remaining", "labeled", "quarantined"), 0)
    idle |= {"already_labeled": 9}
    assert findings.wrong_with_second(report(**idle), before=3, after=3) == []
    assert any("inferred 3" in sentence for sentence in findings.wrong_with_second(report(), before=3, after=3))
    assert findings.wrong_with_second(report(**idle), before=3, after=4) == [
        "the second run took the table labels from version 3 to 4"
    ]


def test_variables_of_a_question() -> None:
    """A question's variables are name=value, the value may hold an equals sign, and anything else is named."""
    assert ask.variables(["doc_id=a=b"]) == {"doc_id": "a=b"}
    with pytest.raises(ValueError, match="d0042 is no variable"):
        ask.variables(["d0042"])


def test_questions_find_the_demos_tables() -> None:
    """Every table that a question in sql/ reads is one of the names that the demo gives its folders."""
    names = set(ask.locations(ROOT / "conf/local.yml"))
    questions = sorted((ROOT / "sql").glob("*.sql"))
    assert len(questions) >= 5
    for question in questions:
        text = re.sub("--.*", "", question.read_text(encoding="utf-8"))
        read = set(re.findall(r"(?:FROM|JOIN) (?:table_changes\(')?(\w+)", text))
        assert read, question.name
        assert read <= names, question.name
