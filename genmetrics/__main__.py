"""``python -m genmetrics`` is the command line."""

import sys

from genmetrics.cli.main import main

sys.exit(main())
