"""Reading and writing files so that what goes wrong is the user's error, with the file's name."""

from __future__ import annotations

import difflib
import os
import tempfile
from pathlib import Path

from svmsim.errors import ScenarioError, UserError, problem


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


def bad_text(text: str) -> str | None:
    """Return why `text` can be no file name and no UTF-8 text, or None when it can."""
    if "\0" in text:
        return "has a NUL character"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "is not UTF-8 text"
    return None


def unreadable(path: Path) -> str | None:
    """Return why `path` cannot be read as a file, or None when it can."""
    reason = bad_text(str(path))
    if reason is not None:
        return f"the file name {reason}"
    if path.exists() and not path.is_file() and not path.is_dir():
        # Opening a pipe and closing it would end the program that writes into it.
        return None if os.access(path, os.R_OK) else "permission denied"
    try:
        with path.open("rb"):
            return None
    except OSError as error:
        return _reason(error)


def nearest_file(path: Path) -> str:
    """Return the file beside `path` whose name is nearest to its name, or an empty string."""
    try:
        names = [entry.name for entry in path.parent.iterdir() if entry.is_file()]
    except OSError:
        return ""
    close = difflib.get_close_matches(path.name, sorted(names), n=1)
    return str(path.with_name(close[0])) if close else ""


def read_text(path: Path) -> str:
    """Return the text of a scenario file.

    Raises:
        ScenarioError: the file does not exist, is no file, may not be read, or is not UTF-8.
    """
    reason = unreadable(path)
    if reason is not None:
        text = f"cannot be read: {reason}"
        raise ScenarioError([problem(text, source=str(path), nearest=nearest_file(path))])
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        item = problem("is not UTF-8 text", source=str(path))
        raise ScenarioError([{**item, "line": line}]) from None
    except OSError as error:
        text = f"cannot be read: {_reason(error)}"
        raise ScenarioError([problem(text, source=str(path))]) from None


def _check_name(path: Path) -> None:
    reason = bad_text(str(path))
    if reason is not None:
        raise UserError([problem(f"the file name {reason}", source=str(path))])


def same_file(one: Path, other: Path) -> bool:
    """Return whether two paths lead to one regular file, or would once it is made."""
    if os.path.realpath(one) == os.path.realpath(other):
        return one.is_file() or not one.exists()
    try:
        return one.is_file() and one.samefile(other)
    except OSError:
        return False


def make_directory(path: Path) -> Path:
    """Make a directory for results, with its parents, and check that it can be written to.

    Raises:
        UserError: it cannot be made or written to.
    """
    _check_name(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path, prefix=".svmsim-"):
            pass
    except OSError as error:
        text = f"cannot write into this directory: {_reason(error)}"
        raise UserError([problem(text, source=str(path))]) from None
    return path


def check_output(path: Path) -> Path:
    """Make the directory of an output file, and check before the work that the file can be made.

    Raises:
        UserError: it cannot be made.
    """
    _check_name(path)
    if path.is_dir():
        raise UserError([problem("cannot be written: is a directory", source=str(path))])
    if path.exists() and not path.is_file():  # /dev/null, a pipe
        return path
    make_directory(path.parent)
    if path.exists() and not os.access(path, os.W_OK):
        raise UserError([problem("cannot be written: permission denied", source=str(path))])
    return path


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file through a temporary name, so that a reader never sees half of it.

    Raises:
        UserError: it cannot be written.
    """
    check_output(path)
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(content)
            return
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            temporary.write_bytes(content)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        text = f"cannot be written: {_reason(error)}"
        raise UserError([problem(text, source=str(path))]) from None


def write_text(path: Path, content: str) -> None:
    """Write a text file as `write_bytes` does."""
    write_bytes(path, content.encode())
