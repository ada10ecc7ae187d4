"""`python -m planner VERB`: see planner.cli."""

import io
import sys

from planner.cli import main

_EXIT_OUTPUT = 2


def run() -> int:
    """Run the command line on the process's own streams.

    A character that the terminal's encoding lacks is escaped, and a full disk is one line, not a trace of calls.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        status = main()
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    except OSError as error:
        if error.filename is not None:
            raise
        sys.stderr.write(f"planner: the output can't be written ({error.strerror})\n")
        sys.stderr.close()
        return _EXIT_OUTPUT
    return status


if __name__ == "__main__":
    sys.exit(run())
