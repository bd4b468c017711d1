"""What a calibration looks like on a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.text import Text

from svmsim._render import table, titled
from svmsim.errors import printable

if TYPE_CHECKING:
    from rich.console import RenderableType

_MEANINGS = {
    "identified": "by the measurements alone, to 2 %",
    "given": "with the conventional costs as in the profile",
    "uncertain": "to 50 % only",
    "sum": "only together; divided as in the profile",
    "assumed": "kept at the profile's value",
}


def calibration_view(data: Mapping[str, Any]) -> list[RenderableType]:
    """Measured and predicted, what became of each cost, and what the measurements leave open."""
    parts: list[RenderableType] = [_measurements(data), Text(), _costs(data)]
    if data["sums"]:
        parts += [Text(), _sums(data)]
    parts += [Text(), _directions(data), Text(), _misfit(data)]
    assumed = [item for item in data["costs"] if item["finding"] == "assumed"]
    for what, names in (
        ("Kept as conventions", [item["name"] for item in assumed if item["convention"]]),
        ("Kept by --keep", [item["name"] for item in assumed if item["kept"]]),
        (
            f"Assumed, as in {printable(data['profile'])}",
            [item["name"] for item in assumed if not (item["convention"] or item["kept"])],
        ),
    ):
        if names:
            parts.append(Text(f"{what}: {', '.join(names)}."))
    parts += [
        Text(
            printable(
                f"Not used: {item['source']}:{item['line']}: {item['name']}: {item['reason']}"
            )
        )
        for item in data["unused"]
    ]
    return parts


def _measurements(data: Mapping[str, Any]) -> RenderableType:
    rows = table(["measurement", "of", "measured", "before", "predicted", "residual"], left=2)
    for item in data["measurements"]:
        place = f"{item['source']}:{item['line']}"
        what = item["name"]
        if item["kind"] == "exit time":
            what += f" exit ({item['workload']})"
        rows.add_row(
            printable(place),
            printable(what),
            f"{item['measured']:,.1f}",
            f"{item['before']:,.1f}",
            f"{item['predicted']:,.1f}",
            f"{item['residual_pct']:+.2f} %",
        )
    return titled("Measured and predicted (TSC cycles)", rows)


def _costs(data: Mapping[str, Any]) -> RenderableType:
    rows = table(["cost", "finding", "before", "fitted", "error", ""], left=2)
    order = list(_MEANINGS)
    fitted = [item for item in data["costs"] if item["finding"] != "assumed"]
    for item in sorted(fitted, key=lambda cost: order.index(cost["finding"])):
        error = item["error_pct"]
        rows.add_row(
            item["name"],
            item["finding"],
            f"{item['before']:,}",
            f"{item['value']:,}",
            "-" if error is None else f"{error:.2g} %" if error >= 0.01 else "< 0.01 %",
            "at its least value" if item["at_bound"] else _MEANINGS[item["finding"]],
        )
    rows.columns[-1].justify = "left"
    return titled("Costs that the measurements reach (TSC cycles)", rows)


def _sums(data: Mapping[str, Any]) -> RenderableType:
    rows = table(["sum", "cycles", "measured by"])
    for item in data["sums"]:
        rows.add_row(item["text"], f"{item['cycles']:,.1f}", printable(item["measured_by"]))
    rows.columns[-1].justify = "left"
    return titled("Measured sums of costs that the measurements cannot tell apart", rows)


def _directions(data: Mapping[str, Any]) -> RenderableType:
    rows = table(["singular value", "", "relative change of"])
    for item in data["singular_values"]:
        terms = "".join(
            f" {'-' if term['factor'] < 0 else '+'} {abs(term['factor']):.2f} {term['cost']}"
            for term in item["combination"]
        )
        rows.add_row(
            f"{item['value']:,.4g}",
            "determined" if item["determined"] else "open",
            terms.removeprefix(" + ").strip(),
        )
    rows.columns[0].justify = "right"
    for column in rows.columns[1:]:
        column.justify = "left"
    rows.columns[-1].no_wrap = False
    threshold = data["threshold"]
    return titled(
        f"Singular values of the scaled Jacobian; from {threshold:g} on, a standard error of at "
        f"most {100 / threshold:g} %",
        rows,
    )


def _misfit(data: Mapping[str, Any]) -> Text:
    freedom = data["degrees_of_freedom"]
    if freedom <= 0:
        return Text(
            "As many costs as measurements: nothing contradicts the fit, nothing confirms it."
        )
    ratio = data["chi_square"] / freedom
    text = f"Chi square {data['chi_square']:.3g} for {freedom} degrees of freedom"
    if ratio > 1:
        text += f"; the errors above are widened by {ratio**0.5:.3g} for it"
    return Text(text + ".")
