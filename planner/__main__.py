"""`python -m planner`: the command line."""

import sys

from planner.cli import main

sys.exit(main())
