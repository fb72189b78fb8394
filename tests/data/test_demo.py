"""The demo's tasks: frozen, honest labels, disjoint splits."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections import Counter
from dataclasses import asdict
from functools import cache
from itertools import groupby

import pytest

from tss.data.demo import ENTITY_DOMAINS, SENTIMENT_DOMAINS, demo_tasks, group_of
from tss.data.demo_grammar import ENTITY_TAGS, Share, lexicon
from tss.tasks.task import Task

FROZEN = "983cf305a99d8db038a346fcc5f4498e1d12fb2f3925e5529bbe004233a600d5"
SEEDS = (0, 1, 2)


def digest(tasks: list[Task]) -> str:
    """SHA-256 of what a learner sees."""
    seen = [
        (task.name, task.kind, task.labels, task.metric, task.family, asdict(task.lengths))
        + tuple([(e.input, e.target) for e in split] for split in (task.train, task.valid, task.test))
        for task in tasks
    ]
    return hashlib.sha256(json.dumps(seen, sort_keys=True).encode()).hexdigest()


def every_example(task: Task):
    return (*task.train, *task.valid, *task.test)


@pytest.fixture(scope="module", params=SEEDS)
def tasks(request) -> list[Task]:
    return demo_tasks(request.param)


def test_the_generator_is_frozen():
    assert digest(demo_tasks(0)) == FROZEN


def test_same_seed_same_tasks_and_quick_is_a_prefix():
    assert digest(demo_tasks(1)) == digest(demo_tasks(1)) != digest(demo_tasks(2))
    assert demo_tasks(0, quick=True) == demo_tasks(0)[:6]


def test_twelve_tasks_of_all_kinds_with_the_similar_ones_spread(tasks):
    assert len(tasks) == len({task.name for task in tasks}) == 12
    assert Counter(task.family for task in tasks) == {"asc": 5, "ner": 3, "ccd": 2, "drg": 1, "sum": 1}
    assert Counter(group_of(task) for task in tasks) == {"similar": 8, "dissimilar": 4}
    assert {task.family: (task.kind, task.metric) for task in tasks} == {
        "asc": ("classification", "macro_f1"),
        "ner": ("tagging", "entity_f1"),
        "ccd": ("classification", "macro_f1"),
        "drg": ("generation", "bleu"),
        "sum": ("generation", "rouge1"),
    }
    assert max(len(list(run)) for _, run in groupby(tasks, key=lambda task: task.family)) == 1
    assert Counter(task.family for task in tasks[:6]) == {"asc": 3, "ner": 1, "ccd": 1, "drg": 1}


def test_no_text_is_in_two_splits_and_no_input_has_two_targets(tasks):
    for task in tasks:
        texts = [
            {" ".join(e.input).lower() if task.kind == "tagging" else e.input[0] for e in split}
            for split in (task.train, task.valid, task.test)
        ]
        assert len(set.union(*texts)) == sum(map(len, texts)), task.name
        assert len({e.input for e in every_example(task)}) == len(every_example(task)), task.name


def test_training_shows_every_label_in_balance(tasks):
    for task in tasks:
        if task.kind == "classification":
            for split in (task.train, task.test):
                counts = Counter(example.target for example in split)
                assert set(counts) == set(task.labels)
                assert max(counts.values()) <= -(-len(split) // len(task.labels))
        elif task.kind == "tagging":
            assert {tag for example in task.train for tag in example.target} == set(task.labels) == set(ENTITY_TAGS)


@cache
def opinions(domain: str) -> tuple[dict[str, str], re.Pattern[str]]:
    """phrase -> polarity, and a pattern that finds (negation or nothing, phrase)."""
    lists = lexicon("sentiment")
    meaning = {
        phrase: polarity
        for polarity in ("positive", "negative")
        for kind in ("", "_verbs", "_idioms")
        for section in ("opinion", domain)
        for phrase in lists[section].get(polarity + kind, ())
    }
    phrases = "|".join(sorted(map(re.escape, meaning), key=len, reverse=True))
    negations = "|".join(sorted(lists["opinion"]["negations"], key=len, reverse=True))
    return meaning, re.compile(rf"\b(?:({negations}) )?({phrases})(?!\w)")


def read_sentiment(domain: str, text: str, aspect: str) -> str:
    """The label as a reader finds it: opinions from left to right, a negation turns its word, one change at most."""
    meaning, pattern = opinions(domain)
    turned = {"positive": "negative", "negative": "positive"}
    said = [turned[meaning[f[2]]] if f[1] else meaning[f[2]] for f in pattern.finditer(text.lower())]
    runs = [polarity for polarity, _ in groupby(said)]
    if len(runs) == 1:
        return runs[0]
    named = [word for word in lexicon("sentiment")[domain]["aspects"] if re.search(rf"\b{word}\b", text.lower())]
    assert len(runs) == len(named) == 2, (text, said, named)
    return runs[sorted(named, key=text.lower().index).index(aspect)]


def test_a_reader_who_knows_the_words_finds_every_sentiment_label(tasks):
    for task in tasks:
        if task.family == "asc":
            for example in every_example(task):
                text, aspect = example.input
                assert read_sentiment(task.name.split("-")[1], text, aspect) == example.target, example


def test_the_aspect_matters(tasks):
    for task in tasks:
        if task.family == "asc":
            asked = Counter(example.input[0] for example in task.train)
            assert sum(count for count in asked.values() if count == 2) >= 0.05 * len(task.train)


def test_topics_follow_from_the_words(tasks):
    for task in tasks:
        if task.family == "ccd":
            lists = lexicon("topics")[task.name.split("-")[1]]
            for example in every_example(task):
                owners = {
                    label
                    for label in task.labels
                    if any(re.search(rf"\b{re.escape(noun)}\b", example.input[0].lower()) for noun in lists[label])
                }
                assert example.target in owners
            nouns = [noun for label in task.labels for noun in lists[label]]
            assert len(nouns) == len(set(nouns))


def test_bio_tags_are_valid_and_one_a_word(tasks):
    for task in tasks:
        if task.kind == "tagging":
            for example in every_example(task):
                assert len(example.input) == len(example.target)
                assert all(word and not word.isspace() for word in example.input)
                for before, tag in zip(("O", *example.target), example.target, strict=False):
                    assert not tag.startswith("I-") or before[1:] == tag[1:]


def test_summaries_can_be_copied_from_the_chat(tasks):
    (task,) = (task for task in tasks if task.family == "sum")
    for example in every_example(task):
        said = set(re.findall(r"\w+", example.input[0]))
        assert set(re.findall(r"\w+", example.target)) - said <= {"and", "will", "meet", "at", "on", "bring"}


def test_replies_name_every_value_of_the_act(tasks):
    (task,) = (task for task in tasks if task.family == "drg")
    for example in every_example(task):
        assert re.fullmatch(r'hotel_\w+\((\w+="[^"]+",?)+\)', example.input[0])
        for value in re.findall(r'="([^"?]+)"', example.input[0]):
            assert value in example.target.lower()


@pytest.mark.parametrize(("domains", "width"), [(len(SENTIMENT_DOMAINS), 0.45), (len(ENTITY_DOMAINS), 0.45)])
def test_training_windows_differ_and_cover_the_family_together(domains, width):
    words = tuple(f"word{i}" for i in range(60))
    windows = [set(Share(index, domains, width).of(words)) for index in range(domains)]
    assert set.union(*windows) == set(words)
    assert all(len(window) == round(width * 60) for window in windows)
    assert len(set(map(frozenset, windows))) == domains


def test_the_sentiment_vocabulary_is_large_and_unambiguous():
    lists = lexicon("sentiment")["opinion"]
    positive, negative = (
        {word for kind in ("", "_verbs", "_idioms") for word in lists[polarity + kind]}
        for polarity in ("positive", "negative")
    )
    assert min(len(positive), len(negative)) >= 75
    assert not positive & negative


def test_texts_are_short_and_the_tasks_quick_to_write():
    start = time.perf_counter()
    tasks = demo_tasks(7)
    assert time.perf_counter() - start < 2
    for task in tasks:
        if task.kind != "generation":
            assert max(len(" ".join(example.input).split()) for example in every_example(task)) <= 45
