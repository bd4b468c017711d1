"""What an analysis needs: tables and columns, declared beside it and missed by name."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

from svmsim.errors import Problem, UserError, problem

if TYPE_CHECKING:
    from svmsim.table import ResultTable

__all__ = ["Analysis", "requires"]

_Method = TypeVar("_Method", bound=Callable[..., Any])


class Analysis:
    """A namespace of a table of results: `df_` methods, and `plot_` methods that draw them."""

    def __init__(self, table: ResultTable) -> None:
        self._table = table

    def __repr__(self) -> str:
        names = [name for name in dir(self) if name.startswith(("df_", "plot_"))]
        return f"{type(self).__name__}({', '.join(names)})"


def requires(**tables: Sequence[str]) -> Callable[[_Method], _Method]:
    """Declare the columns that a method needs, by table; the method then has them.

    A call without them raises a UserError that names each missing column and the nearest one that
    is there. `method.requires` is the declaration.
    """

    def decorate(method: _Method) -> _Method:
        @functools.wraps(method)
        def checked(self: Analysis, *args: Any, **kwargs: Any) -> Any:
            _check(self._table, method.__name__, tables)
            return method(self, *args, **kwargs)

        needed = "; ".join(f"{table}: {', '.join(names)}" for table, names in tables.items())
        checked.__doc__ = f"{(method.__doc__ or '').rstrip()}\n\n        Needs: {needed}.\n        "
        checked.requires = tables  # type: ignore[attr-defined]
        return cast("_Method", checked)

    return decorate


def _check(table: ResultTable, method: str, tables: dict[str, Sequence[str]]) -> None:
    problems: list[Problem] = []
    for name, columns in tables.items():
        try:
            there = table.scan(name).collect_schema().names()
        except UserError as error:
            problems += error.problems
            continue
        for column in columns:
            if column not in there:
                close = difflib.get_close_matches(column, there, n=1, cutoff=0.4)
                text = f"{method} needs this column, which the results do not have"
                nearest = f"{name}.{close[0]}" if close else ""
                problems.append(problem(text, path=f"{name}.{column}", nearest=nearest))
    if problems:
        raise UserError(problems)
