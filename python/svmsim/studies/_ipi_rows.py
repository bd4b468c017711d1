"""The IPI study's table: each published figure beside the simulated one."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from svmsim.result import Result
from svmsim.studies._table import Judged, Tolerance, exact, within


def published() -> dict[str, Any]:
    """Return the published figures, as ipi_published.toml lays them out."""
    path = Path(__file__).with_name("ipi_published.toml")
    return tomllib.loads(path.read_text(encoding="utf-8"))


@dataclass(frozen=True, slots=True)
class IpiRow(Judged):
    """One published quantity of one set-up."""

    setup: str
    quantity: str
    simulated: float
    published: float | tuple[float, float]
    tolerance: Tolerance
    low: float
    high: float
    unit: str
    digits: int
    source: str

    def to_dict(self) -> dict[str, Any]:
        """Return the row as plain data for JSON."""
        names = ("setup", "quantity", "unit", "published", "simulated", "ratio", "tolerance")
        data = {name: getattr(self, name) for name in names}
        return data | {
            "low": self.low,
            "high": self.high,
            "verdict": self.verdict,
            "source": self.source,
        }


def _total_ns(result: Result) -> float:
    return float(result.metrics["vm0.0.total_ns"])


def _per_call(result: Result, vcpu: int, *exits: str) -> float:
    """Return how often a vCPU left the guest for one of `exits`, by call."""
    import polars as pl

    frame = result.exits.filter(
        (pl.col("vm") == "vm0") & (pl.col("vcpu") == vcpu) & pl.col("exit").is_in(exits)
    )
    return float(frame["count"].sum()) / float(result.metrics["vm0.0.iterations"])


def judged_rows(results: Mapping[str, Result]) -> list[IpiRow]:
    """Return the table from the results of the published set-ups by name."""
    data = published()
    rows: list[IpiRow] = []

    def add(
        setup: str,
        quantity: str,
        simulated: float,
        public: float,
        tolerance: tuple[Tolerance, float, float],
        source: str,
        *,
        unit: str = "",
        digits: int = 0,
    ) -> None:
        kind, low, high = tolerance
        rows.append(
            IpiRow(setup, quantity, simulated, public, kind, low, high, unit, digits, source)
        )

    def around(value: float, band: float) -> tuple[Tolerance, float, float]:
        return "R", value - band, value + band

    def factor(value: float, times: float) -> tuple[Tolerance, float, float]:
        return "A", value / times, value * times

    not_judged: tuple[Tolerance, float, float] = ("-", 0.0, 0.0)

    part = data["round_trip"]
    setup, source = "zen2, xAPIC flat, AVIC, idle=poll", part["source"]
    avic, pv = results["round-trip-avic"], results["round-trip-pv"]
    public = part["avic_ns"] / part["pv_ns"]
    ratio = _total_ns(avic) / _total_ns(pv)
    band = around(public, part["ratio_band"])
    add(setup, "round trip, AVIC : PV", ratio, public, band, source, digits=3)
    public = part["pv_ns"] - part["avic_ns"]
    gap = _total_ns(pv) - _total_ns(avic)
    band = around(public, part["gap_band_ns"])
    add(setup, "round trip, PV minus AVIC", gap, public, band, source, unit="ns", digits=0)
    add(setup, "round trip, PV", _total_ns(pv), part["pv_ns"], not_judged, source, unit="ns")
    add(setup, "round trip, AVIC", _total_ns(avic), part["avic_ns"], not_judged, source, unit="ns")
    add(setup, "hypercalls of the sender, PV", _per_call(pv, 0, "hypercall"), 1, exact(1), source)
    ipi_exits = ("msr", "npf", "hypercall", "avic_incomplete_ipi", "avic_unaccelerated_access")
    for who, vcpu in (("sender", 0), ("target", 1)):
        exits = round(_per_call(avic, vcpu, *ipi_exits), 2)
        add(setup, f"IPI exits of the {who}, AVIC", exits, 0, exact(0), source)

    part = data["send"]
    setup, source = "zen2, xAPIC flat, send only", part["source"]
    hz = float(part["profile_tsc_hz"]) / 1e9
    cycles = {name: _total_ns(results[f"send-{name}"]) * hz for name in ("avic", "pv")}
    public = part["avic_cycles"] / part["pv_cycles"]
    band = around(public, part["ratio_band"])
    add(setup, "send, AVIC : PV", cycles["avic"] / cycles["pv"], public, band, source, digits=3)
    for name in ("pv", "avic"):
        value = part[f"{name}_cycles"]
        band = factor(value, part["absolute_factor"])
        label = "send, PV" if name == "pv" else "send, AVIC"
        add(setup, label, cycles[name], value, band, source, unit="cycles")

    part = data["broadcast"]
    setup, source = "skylake, x2APIC physical, 80 vCPUs", part["source"]
    icr, pv = results["broadcast-icr"], results["broadcast-pv"]
    public = part["icr_us"] / part["pv_us"]
    band = within("R", public, part["gain_band"])
    gain = _total_ns(icr) / _total_ns(pv)
    add(setup, "broadcast, ICR : PV", gain, public, band, source, digits=2)
    icr_exits = ("msr", "avic_incomplete_ipi")
    others = part["vcpus"] - 1
    add(
        setup,
        "ICR exits of a broadcast",
        _per_call(icr, 0, *icr_exits),
        others,
        exact(others),
        source,
    )
    add(setup, "hypercalls of a broadcast", _per_call(pv, 0, "hypercall"), 1, exact(1), source)
    for label, name, value in (
        ("broadcast, ICR", "broadcast-icr", part["icr_us"]),
        ("broadcast, PV", "broadcast-pv", part["pv_us"]),
        ("unicast, ICR", "unicast-icr", part["unicast_total_us"]),
    ):
        band = factor(value, part["absolute_factor"])
        add(setup, label, _total_ns(results[name]) / 1000, value, band, source, unit="us", digits=2)

    part = data["unicast"]
    setup, source = "skylake, x2APIC cluster, unicast", part["source"]
    public = part["pv_us"] / part["icr_us"]
    ratio = _total_ns(results["cluster-pv"]) / _total_ns(results["cluster-icr"])
    band = around(1.0, part["ratio_band"])
    add(setup, "unicast, PV : ICR", ratio, public, band, source, digits=3)

    part = data["hardware"]
    setup, source = "skylake, x2APIC, 2 vCPUs", part["source"]
    public = part["no_exit_cycles"] / part["exit_cycles"]
    ratio = _total_ns(results["hardware-no-exit"]) / _total_ns(results["hardware-exit"])
    band = around(public, part["ratio_band"])
    add(setup, "IPI without and with the sender's exit", ratio, public, band, source, digits=3)
    return rows
