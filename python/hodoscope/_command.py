"""The command `hodo`, as the wheel installs it."""

import signal
import sys

from . import _native


def main():
    """Runs the command with the arguments of this process."""
    # Python's handler would only be asked after the command has ended.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(_native.run(["hodo", *sys.argv[1:]]))
