"""`svmsim report DIR`: one page of HTML that needs nothing else, from a table of results."""

from svmsim.report.page import report_html, write_report

__all__ = ["report_html", "write_report"]
