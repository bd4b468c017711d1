"""Analyses of results: comparisons, namespaces by topic, sensitivity to parameters."""

from svmsim.analysis.comparison import Change, Comparison
from svmsim.analysis.comparison import compare_tables as compare
from svmsim.analysis.sensitivity import Effect, Sensitivity, sobol, tornado

__all__ = ["Change", "Comparison", "Effect", "Sensitivity", "compare", "sobol", "tornado"]
