"""The entry of the command line.

Exit status: 0 success, 1 a check failed, 2 the input is wrong, 3 our bug, 130 interrupted.

What is slow to import is imported within `main`, where an interrupt is caught.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import NoReturn

STATUS_USER_ERROR = 2
STATUS_INTERNAL_ERROR = 3
STATUS_INTERRUPTED = 130


def _complain(text: str) -> None:
    """Write to standard error, whose own failure can be told to nobody."""
    if sys.stderr is not None:  # None when the process was started with it closed
        with contextlib.suppress(OSError, ValueError):
            print(text, file=sys.stderr, flush=True)


def _drop_output() -> None:
    """Send what standard output still holds nowhere, or Python fails again when it ends."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _check_arguments() -> None:
    from svmsim._files import bad_text
    from svmsim.errors import UserError, problem

    problems = [
        problem(f"the argument {reason}", source=argument)
        for argument in sys.argv[1:]
        if (reason := bad_text(argument)) is not None
    ]
    if problems:
        raise UserError(problems)


def _run() -> int:
    """Run the command and return its exit status; the status of usage errors is typer's."""
    from svmsim._all_commands import app

    status = 0
    try:
        app(prog_name="svmsim")
    except SystemExit as done:
        status = done.code if isinstance(done.code, int) else int(done.code is not None)
    if sys.stdout is not None:
        sys.stdout.flush()  # here, since after the end nobody would catch what goes wrong
    return status


def _report_bug(error: Exception) -> None:
    from svmsim.errors import printable

    if os.environ.get("SVMSIM_TRACEBACK"):
        import traceback

        _complain(traceback.format_exc())
    text = printable(str(error)) or "no more is known"
    _complain(
        f"svmsim: internal error, a bug of svmsim: {type(error).__name__}: {text}\n"
        "Please report it with the command and its input; SVMSIM_TRACEBACK=1 shows more."
    )


def _main() -> int:
    from svmsim.errors import UserError, printable

    try:
        _check_arguments()
        return _run()
    except UserError as error:
        _complain(str(error))
        _drop_output()
        return STATUS_USER_ERROR
    except BrokenPipeError:  # whoever read has seen enough
        _drop_output()
        return 1
    except OSError as error:  # a full disk, a limit of the system: never a fault of the program
        where = f"{error.filename}: " if error.filename else ""
        _complain(printable(f"svmsim: {where}{(error.strerror or str(error)).lower()}"))
        _drop_output()
        return STATUS_USER_ERROR
    except Exception as error:
        _report_bug(error)
        return STATUS_INTERNAL_ERROR


def main() -> NoReturn:
    """Run the command line and leave with its exit status; never with a traceback."""
    try:
        status = _main()
    except KeyboardInterrupt:
        status = STATUS_INTERRUPTED
    sys.exit(status)
