"""svmsim: a cycle-level simulator of AMD SVM virtualization under KVM.

A `Scenario` says what to simulate, `Scenario.run` gives a `Result`, `svmsim.plot` draws results and
`svmsim.studies` holds published experiments.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from svmsim.errors import (
    InternalError,
    Problem,
    ScenarioError,
    TraceError,
    UserError,
    VmcbError,
)

if TYPE_CHECKING:
    from svmsim import plot, studies
    from svmsim._vmcb import explain_vmcb
    from svmsim.result import Result
    from svmsim.scenario import Scenario

    __version__: str

__all__ = [
    "InternalError",
    "Problem",
    "Result",
    "Scenario",
    "ScenarioError",
    "TraceError",
    "UserError",
    "VmcbError",
    "explain_vmcb",
    "plot",
    "studies",
]


def __getattr__(name: str) -> Any:
    """Import what takes time when it is first used, not all of it for every command."""
    value: Any
    if name in {"plot", "studies"}:
        value = importlib.import_module(f"svmsim.{name}")
    elif name in {"Result", "Scenario"}:
        value = getattr(importlib.import_module(f"svmsim.{name.lower()}"), name)
    elif name == "explain_vmcb":
        value = importlib.import_module("svmsim._vmcb").explain_vmcb
    elif name == "__version__":
        value = importlib.import_module("svmsim._core").version()
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
