"""svmsim: a cycle-level simulator of AMD SVM virtualization under KVM.

A `Scenario` says what to simulate, `Scenario.run` gives a `Result`, `svmsim.plot` draws results and
`svmsim.studies` holds published experiments.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING

from svmsim._core import version as _version
from svmsim.errors import (
    InternalError,
    Problem,
    ScenarioError,
    TraceError,
    UserError,
    VmcbError,
)
from svmsim.result import Result
from svmsim.scenario import Scenario

if TYPE_CHECKING:
    from svmsim import plot, studies

__all__ = [
    "InternalError",
    "Problem",
    "Result",
    "Scenario",
    "ScenarioError",
    "TraceError",
    "UserError",
    "VmcbError",
    "plot",
    "studies",
]
__version__: str = _version()


def __getattr__(name: str) -> ModuleType:
    """Import `svmsim.plot` and `svmsim.studies` when first used: they are not needed to run."""
    if name in {"plot", "studies"}:
        return importlib.import_module(f"svmsim.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
