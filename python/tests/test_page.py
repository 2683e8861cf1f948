"""The pages for users show what works."""

import re
import subprocess
import sys

import pytest
from conftest import FIXTURES, ROOT

# The script that needs a cluster's address is no script of a test; test_recipes.py runs those for Ray and Spark where they are
# installed.
SCRIPTS = [(page, script) for page in ["README.md", "docs/python.md"]
           for script in re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.S)
           if not re.search("scheduler:|import ray|import pyspark", script)]


def test_there_are_scripts():
    assert len(SCRIPTS) == 4


@pytest.mark.parametrize("page, script", SCRIPTS)
def test_a_script_of_a_page_runs(page, script, tmp_path, monkeypatch):
    # A store goes into the user's cache.
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "fixtures").symlink_to(FIXTURES)
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "shape: (" in done.stdout and "shape: (0," not in done.stdout
    if page == "README.md":
        assert "write" in done.stdout
        assert (tmp_path / "functions.svg").read_text().startswith("<svg ")
