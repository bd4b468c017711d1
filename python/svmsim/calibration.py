"""Fitting the costs of a profile to measurements of one's own host."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from svmsim import _core
from svmsim._files import check_output, write_text

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.axes import Axes

PERF_EVENTS = ("kvm_entry", "kvm_exit", "kvm_mmio", "kvm_pio", "kvm_msr")
"""What `perf kvm stat record` records; each event costs `t_trace` within the times of its table."""


class Calibration:
    """A profile fitted to measurements, with what these say about each of its costs.

    `findings` names the costs: "identified" by the measurements alone, "given" the profile's values
    of the conventional costs (`t_loop`, `t_trace`, …), "uncertain", known only in a "sum", and
    "assumed", which keep the profile's values.
    """

    def __init__(self, data: dict[str, Any]) -> None:
        self._data = data

    def to_dict(self) -> dict[str, Any]:
        """Return everything, as `svmsim calibrate --json` writes it."""
        return self._data

    def to_json(self) -> str:
        """Return the same as JSON text."""
        return json.dumps(self._data, indent=2, ensure_ascii=False) + "\n"

    @property
    def profile(self) -> str:
        """The fitted profile's text, for a file that `host.profile` names."""
        return str(self._data["profile_toml"])

    @property
    def findings(self) -> dict[str, list[str]]:
        """Names of the costs by what the measurements say about them."""
        return dict(self._data["findings"])

    @property
    def costs(self) -> pl.DataFrame:
        """Every cost: value before and after in TSC cycles, standard error in percent, source."""
        import polars as pl

        return pl.DataFrame(self._data["costs"], infer_schema_length=None)

    @property
    def measurements(self) -> pl.DataFrame:
        """Measured beside predicted, in TSC cycles."""
        import polars as pl

        return pl.DataFrame(self._data["measurements"], infer_schema_length=None)

    @property
    def sums(self) -> list[dict[str, Any]]:
        """Sums of costs that were measured where the costs themselves were not."""
        return list(self._data["sums"])

    def save(self, path: str | Path) -> Path:
        """Write the profile's file and return its path.

        Raises:
            UserError: the file cannot be written.
        """
        target = Path(path)
        check_output(target)
        write_text(target, self.profile)
        return target

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw predicted against measured, before and after the fit."""
        from svmsim.plot import calibration

        return calibration(self, ax=ax)

    def __repr__(self) -> str:
        counts = ", ".join(f"{len(names)} {kind}" for kind, names in self.findings.items())
        return f"<Calibration of {self._data['profile']}: {counts}>"

    def __str__(self) -> str:
        from svmsim._calibration_view import calibration_view
        from svmsim._render import rendered

        return rendered(*calibration_view(self._data))


def calibrate(
    profile: str | Path,
    inputs: str | Path | Iterable[str | Path],
    *,
    keep: Sequence[str] = (),
    recorded: Sequence[str] = PERF_EVENTS,
    overrides: Sequence[str] = (),
    tsc_hz: int = 0,
    error_pct: float = 0.0,
    name: str = "",
) -> Calibration:
    """Fit the costs of `profile` to tables of `perf kvm stat report` and results of vmexit.

    Args:
        profile: A built-in profile or the path of one, from which the fit starts.
        inputs: Files; ``"WORKLOAD:FILE"`` for tables of a known guest, which is a built-in program
            or a scenario's file.
        keep: Costs that are known: ``"t_loop"`` keeps the profile's value, ``"t_loop=250"`` gives
            one in cycles.
        recorded: Events that were recorded while the tables were made; empty for tables that were
            made without.
        overrides: ``"KEY=VALUE"`` settings of the simulations, as of ``--set``.
        tsc_hz: TSC frequency of the measured host; 0 = the profile's.
        error_pct: Standard error of every measurement, beyond what its text says.
        name: Of the new profile.

    Raises:
        UserError: something is wrong with an input, or the measurements identify nothing.
        TraceError: a file cannot be read.
    """
    paths = [inputs] if isinstance(inputs, str | Path) else list(inputs)
    options: dict[str, Any] = {
        "keep": list(keep),
        "events": list(recorded),
        "set": list(overrides),
        "tsc_hz": int(tsc_hz),
        "error_pct": float(error_pct),
        "name": name,
    }
    files = [str(path) for path in paths]
    return Calibration(json.loads(_core.calibrate(str(profile), files, json.dumps(options))))
