"""The recipes of docs/python.md for Ray and Spark. Both are large: `pip install ray pyspark` for these tests."""

import contextlib
import io
import pathlib
import re
import sys

import pytest
from conftest import EVENTS, ROOT

import hodoscope

RECIPES = re.findall(r"```python\n(import (ray|pyspark)\n.*?)```", pathlib.Path(ROOT / "docs/python.md").read_text(), re.DOTALL)


def test_there_are_recipes():
    assert [module for _, module in RECIPES] == ["ray", "pyspark"]


@pytest.mark.parametrize("script, module", RECIPES)
def test_a_recipe_prints_the_table_of_one_machine(script, module, monkeypatch):
    pytest.importorskip(module)
    # Spark's workers are of the first Python in PATH otherwise.
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(script.replace("/shared/my-trace", EVENTS), {})
    # Spark's workers may print too.
    assert printed.getvalue().strip().endswith(str(hodoscope.open(EVENTS).report("syscalls").to_polars()))
