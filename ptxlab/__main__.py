"""``python -m ptxlab`` is the command ``ptxlab``."""

import sys

from ptxlab.main import command

if __name__ == "__main__":
    sys.exit(command())
