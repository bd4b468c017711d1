"""svmsim: a cycle-level simulator of AMD SVM virtualization under KVM.

A `Scenario` says what to simulate, `Scenario.run` gives a `Result`, `svmsim.plot` draws results and
`svmsim.studies` holds published experiments. Below that, `check` runs conformance cases of SVM,
and a `GuestCpu` executes guest actions under a `Vmcb`, step by step.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from svmsim.errors import (
    CaseError,
    InternalError,
    Problem,
    ScenarioError,
    TraceError,
    UserError,
    VmcbError,
)

if TYPE_CHECKING:
    from svmsim import plot, studies
    from svmsim._check import CaseResult, CheckResult, check, list_cases
    from svmsim._core import Environment, GuestCpu, Step, Vmcb
    from svmsim._vmcb import explain_vmcb
    from svmsim.analysis import Comparison, Effect, Sensitivity, compare, sobol, tornado
    from svmsim.calibration import Calibration, calibrate
    from svmsim.campaign import Campaign, Repeat, Sample, SampleRange, When
    from svmsim.diagnosis import Diagnosis, diagnose
    from svmsim.events import Events
    from svmsim.result import Result
    from svmsim.scenario import Scenario
    from svmsim.table import ResultTable

    __version__: str

__all__ = [
    "Calibration",
    "Campaign",
    "CaseError",
    "CaseResult",
    "CheckResult",
    "Comparison",
    "Diagnosis",
    "Effect",
    "Environment",
    "Events",
    "GuestCpu",
    "InternalError",
    "Problem",
    "Repeat",
    "Result",
    "ResultTable",
    "Sample",
    "SampleRange",
    "Scenario",
    "ScenarioError",
    "Sensitivity",
    "Step",
    "TraceError",
    "UserError",
    "Vmcb",
    "VmcbError",
    "When",
    "calibrate",
    "check",
    "compare",
    "diagnose",
    "explain_vmcb",
    "list_cases",
    "plot",
    "sobol",
    "studies",
    "tornado",
]


def __getattr__(name: str) -> Any:
    """Import what takes time when it is first used, not all of it for every command."""
    value: Any
    if name in {"plot", "studies"}:
        value = importlib.import_module(f"svmsim.{name}")
    elif name in {"Events", "Result", "Scenario"}:
        value = getattr(importlib.import_module(f"svmsim.{name.lower()}"), name)
    elif name in {"Calibration", "calibrate"}:
        value = getattr(importlib.import_module("svmsim.calibration"), name)
    elif name in {"Campaign", "Repeat", "Sample", "SampleRange", "When"}:
        value = getattr(importlib.import_module("svmsim.campaign"), name)
    elif name in {"Comparison", "Effect", "Sensitivity", "compare", "sobol", "tornado"}:
        value = getattr(importlib.import_module("svmsim.analysis"), name)
    elif name in {"Diagnosis", "diagnose"}:
        value = getattr(importlib.import_module("svmsim.diagnosis"), name)
    elif name == "ResultTable":
        value = importlib.import_module("svmsim.table").ResultTable
    elif name == "explain_vmcb":
        value = importlib.import_module("svmsim._vmcb").explain_vmcb
    elif name in {"CaseResult", "CheckResult", "check", "list_cases"}:
        value = getattr(importlib.import_module("svmsim._check"), name)
    elif name in {"Environment", "GuestCpu", "Step", "Vmcb"}:
        value = getattr(importlib.import_module("svmsim._core"), name)
    elif name == "__version__":
        value = importlib.import_module("svmsim._core").version()
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
