"""Starts the app with its first answer ready: `python -m planner.ui.serve [streamlit options]`.

Streamlit imports a page's modules when the first visitor comes, and the planner's own caches are empty then. Both are filled here,
in the process that serves, before the port opens: the page that the app opens with is drawn once for nobody.
"""

import contextlib
import gc
import logging
import sys
from collections.abc import Sequence

from planner.errors import InputError
from planner.paths import ROOT_DIR
from planner.scenario import Scenario

_REHEARSAL_S = 60.0
# These warn of a run without a visitor, and of options that come after the configuration was first read; here both are meant.
_WARN_OF_WHAT_IS_MEANT = ("streamlit.runtime.scriptrunner_utils.script_run_context", "streamlit.config")


def prepare() -> None:
    """Answer the scenario that the app opens with, and draw its page once.

    A fault in the user's own files is left for the page, which can show it. What is there then, modules and catalogues above all,
    stays as long as the process: collections of garbage, each of which held up every thread for a fifth of a second, no longer walk
    through it.
    """
    from streamlit.testing.v1 import AppTest  # noqa: PLC0415 - imports are half of the work

    from planner.ui.plans import cached_plan, catalogue_stamp  # noqa: PLC0415

    with contextlib.suppress(InputError):
        cached_plan(Scenario(), catalogue_stamp())
    AppTest.from_file(str(ROOT_DIR / "app.py"), default_timeout=_REHEARSAL_S).run()
    gc.collect()
    gc.freeze()


def main(options: Sequence[str]) -> None:
    """Serve the app; options : Streamlit's own, such as --server.port 8600."""
    from streamlit.web.cli import main as streamlit_main  # noqa: PLC0415 - after the planner, whose answer comes first

    for name in _WARN_OF_WHAT_IS_MEANT:
        logging.getLogger(name).addFilter(lambda record: record.levelno > logging.WARNING)
    prepare()
    sys.argv = ["streamlit", "run", str(ROOT_DIR / "app.py"), *options]
    streamlit_main(prog_name="streamlit")


if __name__ == "__main__":
    main(sys.argv[1:])
