"""Names are data, in one Unicode form, shown safely; whatever is accepted stays as it is."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tss.errors import TaskError
from tss.tasks.names import case_twins, check_name, show_name
from tss.tasks.task import Task

ROWS = [("a", "x"), ("b", "y"), ("c", "x"), ("d", "y")]


@pytest.mark.parametrize("name", ["../x", "a/b", "CON", "C:\\x", "-rf", "my task", "名前", "é" * 100, "n" * 200, "."])
def test_names_that_look_like_paths_are_fine(name):
    assert check_name(name) == name


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "empty"),
        ("   ", "empty"),
        ("x" * 201, "201 bytes"),
        ("é" * 101, "202 bytes"),
        ("x" * 10_000, "10000 bytes"),
        ("a\0b", "U+0000"),
        ("a\nb", "U+000A"),
        ("a\x1b[31m", "U+001B"),
        ("a\u202eb", "U+202E"),
        ("a\u200bb", "U+200B"),
        ("a\u2028b", "U+2028"),
        ("a\ud800", "U+D800"),
        (" a", "blank"),
        ("a ", "blank"),
        (None, "NoneType"),
        (3, "int"),
    ],
)
def test_bad_names_are_refused_with_the_reason(name, why):
    with pytest.raises(TaskError) as error:
        check_name(name)
    assert why in str(error.value)
    assert str(error.value).isprintable()
    assert len(str(error.value)) < 300


def test_two_unicode_forms_are_one_name():
    assert check_name("cafe\u0301") == check_name("caf\u00e9") == "caf\u00e9"
    assert Task.from_lists("cafe\u0301", "classification", ROWS).name == "caf\u00e9"


def test_case_makes_different_names_that_can_be_told_apart():
    assert check_name("Shop") != check_name("shop")
    assert case_twins("Shop", ["shop", "SHOP", "Shop", "shops"]) == ["shop", "SHOP"]


@settings(deadline=None)
@given(st.text(max_size=300))
def test_a_name_is_refused_or_settled_for_good(name):
    try:
        settled = check_name(name)
    except TaskError as error:
        assert str(error).isprintable()
        return
    assert check_name(settled) == settled
    assert settled == unicodedata.normalize("NFC", name)
    assert settled.isprintable()
    assert settled == settled.strip()
    assert 1 <= len(settled.encode()) <= 200
    assert check_name(unicodedata.normalize("NFD", settled)) == settled


@settings(deadline=None)
@given(st.text(st.characters(), max_size=200))
def test_shown_names_are_safe_to_print(name):
    assert show_name(name).encode().decode().isprintable()
