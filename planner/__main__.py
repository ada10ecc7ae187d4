"""`python -m planner VERB`: see planner.cli."""

import io
import sys

from planner.cli import main

_EXIT_OUTPUT = 2
_EXIT_INTERRUPTED = 130


def _complain(text: str) -> None:
    if sys.stderr is not None:
        sys.stderr.write(f"planner: {text}\n")


def run() -> int:
    """Run the command line on the process's own streams.

    A character that the terminal's encoding lacks is escaped; a full disk and an interrupt are one line, not a trace of calls.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        status = main()
        if sys.stdout is not None:
            sys.stdout.flush()
    except KeyboardInterrupt:
        _complain("interrupted")
        return _EXIT_INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    except OSError as error:
        if error.filename is not None:
            raise
        _complain(f"the output can't be written ({error.strerror})")
        sys.stderr.close()
        return _EXIT_OUTPUT
    return status


if __name__ == "__main__":
    sys.exit(run())
