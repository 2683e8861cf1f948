"""The command `hodo`, as the wheel installs it."""

import os
import pathlib
import signal
import sys

from . import _native

# The emulated processor of `hodo record`, which the program itself would look for beside the interpreter.
PLUGIN = pathlib.Path(__file__).with_name("libhodo_emulator.so")


def main():
    """Runs the command with the arguments of this process."""
    # Python's handler would only be asked after the command has ended.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if PLUGIN.exists():
        os.environ.setdefault("HODO_EMULATOR", str(PLUGIN))
    sys.exit(_native.run(["hodo", *sys.argv[1:]]))
