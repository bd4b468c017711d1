"""Analyses of results: comparisons, namespaces by topic, sensitivity to parameters."""

from svmsim.analysis.comparison import Change, Comparison, compare_tables

__all__ = ["Change", "Comparison", "compare_tables"]
