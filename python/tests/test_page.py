"""The pages for users show what works."""

import re
import subprocess
import sys

import pytest
from conftest import ROOT

# The script that needs a cluster's address is no script of a test.
SCRIPTS = [(page, script) for page in ["README.md", "docs/python.md"]
           for script in re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.S)
           if "scheduler:" not in script]


def test_there_are_scripts():
    assert len(SCRIPTS) == 3


@pytest.mark.parametrize("page, script", SCRIPTS)
def test_a_script_of_a_page_runs(page, script):
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "shape: (" in done.stdout
