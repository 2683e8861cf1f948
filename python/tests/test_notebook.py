"""A notebook shows tables and plots, as a browser draws them."""

import pathlib
import shutil
import subprocess

import nbformat
import pytest
from conftest import EVENTS, FLOW, SYMFS
from nbclient import NotebookClient
from nbconvert import HTMLExporter
from PIL import Image

CELLS = [
    "import hodoscope",
    f"flow = hodoscope.open({FLOW!r}, symfs={SYMFS!r})\nfunctions = flow.report('functions')\nfunctions",
    "functions.plot()",
    f"events = hodoscope.open({EVENTS!r})\nevents.report('states', by='interval').plot()",
    "events.report('count', by='time').plot()",
]
# The colour of bars, and two of lanes.
COLOURS = [(0x00, 0x72, 0xB2), (0xE6, 0x9F, 0x00), (0xCC, 0x79, 0xA7)]


@pytest.fixture(scope="module")
def notebook():
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    return NotebookClient(notebook, timeout=300, kernel_name="python3").execute()


def test_outputs_are_tables_and_pictures(notebook):
    shown = [cell.outputs[0].data if cell.outputs else {} for cell in notebook.cells]
    assert "self instructions" in shown[1]["text/html"]
    assert [sorted(data) for data in shown[2:]] == [["image/svg+xml", "text/plain"]] * 3


def test_a_browser_draws_them(notebook, tmp_path):
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("there is no chromium")
    exporter = HTMLExporter(mathjax_url="", require_js_url="")
    page, picture = tmp_path / "notebook.html", tmp_path / "notebook.png"
    page.write_text(exporter.from_notebook_node(notebook)[0])
    command = [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1000,2600",
               f"--user-data-dir={tmp_path / 'profile'}", f"--screenshot={picture}", page.as_uri()]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    pixels = Image.open(picture).convert("RGB").get_flattened_data()
    for colour in COLOURS:
        assert sum(pixel == colour for pixel in pixels) > 500, colour
    keep = pathlib.Path(__file__).resolve().parents[2] / "target/notebook.png"
    shutil.copy(picture, keep)
