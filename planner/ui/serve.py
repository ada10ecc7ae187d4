"""Starts the app with everything warm: modules imported, compiled code loaded, catalogues read, the first answer made once.

`streamlit run app.py` works as well; there the first visitor waits for all of this.
"""

import sys
from collections.abc import Sequence

from streamlit.web import cli

from planner.paths import ROOT_DIR
from planner.plan import plan
from planner.scenario import Scenario


def warm() -> None:
    """Make the default plan, which reads and compiles whatever the page will need."""
    plan(Scenario())


def main(arguments: Sequence[str]) -> None:
    """Warm up, then serve until stopped; arguments : further options of `streamlit run`."""
    warm()
    sys.argv = ["streamlit", "run", str(ROOT_DIR / "app.py"), *arguments]
    cli.main()


if __name__ == "__main__":
    main(sys.argv[1:])
