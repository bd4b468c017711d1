"""`svmsim calibrate`: its files, output, picture and refusals. The fit is tested in C++."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import svmsim as sv
from conftest import Cli
from svmsim.calibration import PERF_EVENTS

KNOWN = {"t_world": 900, "t_user_exit": 3900, "h_cpuid": 150, "h_msr": 210, "t_trace": 640}
"""The costs of the measured host that are not turin's."""

HEADING = (
    "Event name  Samples  Sample%  Time (ns)  Time%  Max Time (ns)  Min Time (ns)  Mean Time (ns)\n"
)

PROGRAMS = ("cpuid", "vmcall", "wr_tsc_adjust_msr", "inl_from_qemu", "inl_from_kernel")


def simulated(program: str, *, recorded: bool) -> sv.Result:
    host: dict[str, Any] = {"hz": 0, "cost": KNOWN}
    if recorded:
        host["tracepoints"] = list(PERF_EVENTS)
    workload = {"kind": program, "goal": 2_000_000}
    return sv.Scenario.from_dict({"host": host, "vm": [{"workload": workload}]}).run()


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What somebody measured on that host: vmexit's output, and tables of two guests under perf."""
    directory = tmp_path_factory.mktemp("host")
    lines = ["paging enabled", "cr0 = 80010011"]
    for program in PROGRAMS:
        cycles = simulated(program, recorded=False).metrics["cycles_per_iteration"]
        lines.append(f"{program} {cycles:.0f}")
    (directory / "vmexit.txt").write_text("\n".join(lines) + "\n")
    inputs = [str(directory / "vmexit.txt")]
    for program in ("cpuid", "wr_tsc_adjust_msr"):
        table = HEADING
        for row in simulated(program, recorded=True).exits.to_dicts():
            table += (
                f"{row['exit']} {row['count']} 99.00% {row['time_ns']} 99.00% {row['max_ns']}"
                f" {row['min_ns']} {row['mean_ns']:.0f}\n"
            )
        (directory / f"{program}.txt").write_text(table)
        inputs.append(f"{program}:{directory / program}.txt")
    return inputs


@pytest.fixture(scope="module")
def fit(measured: list[str]) -> sv.Calibration:
    return sv.calibrate("turin", measured, name="mine")


def test_identified_costs_are_those_of_the_host(fit: sv.Calibration) -> None:
    values = {item["name"]: item for item in fit.to_dict()["costs"]}
    assert {"t_world", "t_trace", "t_user_exit"} <= set(fit.findings["identified"])
    for name in fit.findings["identified"]:
        assert values[name]["value"] == pytest.approx(
            KNOWN.get(name, values[name]["before"]), rel=0.02
        )
    assert values["h_cpuid"]["finding"] == "given"
    assert values["h_cpuid"]["value"] == KNOWN["h_cpuid"]  # t_loop is turin's on this host, too
    assert values["t_loop"]["convention"]
    for name in fit.findings["assumed"]:
        assert values[name]["value"] == values[name]["before"]


def test_predictions_and_sums(fit: sv.Calibration) -> None:
    frame = fit.measurements
    assert frame.height == len(PROGRAMS) + 2
    rows = frame.to_dicts()
    assert max(abs(row["residual_pct"]) for row in rows) < 0.5
    assert max(abs(row["before"] - row["measured"]) for row in rows) > 100
    texts = {item["text"]: item["cycles"] for item in fit.sums}
    assert texts["t_loop + h_cpuid"] == pytest.approx(250 + 150, abs=1)
    values = [item["value"] for item in fit.to_dict()["singular_values"]]
    assert values == sorted(values, reverse=True)
    assert fit.to_dict()["threshold"] == 50


def test_same_again(fit: sv.Calibration, measured: list[str]) -> None:
    assert sv.calibrate("turin", measured, name="mine").to_json() == fit.to_json()


def test_profile_is_used_by_a_scenario(fit: sv.Calibration, tmp_path: Path) -> None:
    path = fit.save(tmp_path / "my-host.toml")
    scenario = sv.Scenario.from_dict(
        {
            "host": {"profile": str(path), "hz": 0},
            "vm": [{"workload": {"kind": "cpuid", "goal": 2_000_000}}],
        }
    )
    expected = simulated("cpuid", recorded=False).metrics["cycles_per_iteration"]
    assert scenario.run().metrics["cycles_per_iteration"] == pytest.approx(expected, abs=1)
    assert 'source = "fitted to ' in path.read_text()


def test_command(cli: Cli, measured: list[str], fit: sv.Calibration, tmp_path: Path) -> None:
    out, picture = tmp_path / "mine.toml", tmp_path / "fit.png"
    first, *more = measured
    done = cli(
        "calibrate", "--profile", "turin", "--from", first, *more, "-o", out, "--plot", picture,
        "--json", tmp_path / "fit.json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert out.read_text() == fit.profile
    assert json.loads((tmp_path / "fit.json").read_text()) == fit.to_dict()
    assert picture.read_bytes().startswith(b"\x89PNG")
    for text in ("Measured and predicted", "Singular values", "t_loop + h_cpuid", "identified"):
        assert text in done.stdout
    assert str(out) in done.stdout


def test_refusals(cli: Cli, tmp_path: Path) -> None:
    one = tmp_path / "one.txt"
    one.write_text("cpuid 1234\n")
    out = tmp_path / "out.toml"
    done = cli("calibrate", "--profile", "turin", "--from", one, "-o", out)
    assert done.returncode == 2
    assert "gives the sum t_world + h_cpuid alone" in done.stderr
    assert not out.exists()
    done = cli("calibrate", "--profile", "turin", "--from", one, "-o", one)
    assert done.returncode == 2
    assert "it is an input" in done.stderr
    done = cli("calibrate", "--profile", "turing", "--from", one, "-o", out)
    assert done.returncode == 2
    assert "did you mean turin?" in done.stderr
    for option in (["--recorded", "kvm_entri"], ["--keep", "t_wrld"], ["--plot", "fit.bmp"]):
        done = cli("calibrate", "--profile", "turin", "--from", one, "-o", out, *option)
        assert done.returncode == 2, option
        assert done.stderr.count("\n") <= 3
        assert "Traceback" not in done.stderr


def test_known_costs_are_kept(measured: list[str]) -> None:
    fit = sv.calibrate("turin", measured[0], keep=["t_world=900", "t_loop"])
    values = {item["name"]: item for item in fit.to_dict()["costs"]}
    assert values["t_world"]["kept"]
    assert values["t_world"]["value"] == 900
    assert values["h_cpuid"]["finding"] == "identified"
    assert values["h_cpuid"]["value"] == KNOWN["h_cpuid"]
    assert values["h_msr"]["value"] == KNOWN["h_msr"]


def test_what_cannot_be_used_is_named(tmp_path: Path) -> None:
    text = tmp_path / "vmexit.txt"
    text.write_text("inl_from_qemu 5826\ninl_from_kernel 2008\npci-mem 900\n")
    fit = sv.calibrate("turin", text)
    assert fit.findings["identified"] == ["t_user_exit"]
    assert [(item["line"], item["name"]) for item in fit.to_dict()["unused"]] == [(3, "pci-mem")]
    assert "pci-mem" in str(fit)
