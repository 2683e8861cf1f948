"""The page for users shows what works."""

import re
import subprocess
import sys

from conftest import ROOT


def test_the_script_of_the_page_runs():
    script = re.search(r"```python\n(.*?)```", (ROOT / "docs/python.md").read_text(), re.S).group(1)
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "shape: (" in done.stdout and "ns" in done.stdout
