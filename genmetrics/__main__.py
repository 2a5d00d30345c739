"""``python -m genmetrics`` is the command line."""

import sys

from genmetrics.cli.main import command

sys.exit(command())
