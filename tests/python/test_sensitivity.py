"""Sensitivity to cost parameters, on a workload whose cycles are a known sum of costs."""

from __future__ import annotations

import json

import pytest

import svmsim as sv
from conftest import Cli

ITERATIONS = 64


@pytest.fixture(scope="module")
def base() -> sv.Scenario:
    """CPUID in a loop: an iteration takes t_world + t_loop + h_cpuid, and the guest's own time."""
    return sv.Scenario.from_dict(
        {
            "host": {"hz": 0},
            "vm": [{"pin": [0], "workload": {"kind": "cpuid", "iterations": ITERATIONS}}],
        }
    )


CYCLES = "workload.cycles_per_iteration"


def test_tornado_gives_the_slopes(base: sv.Scenario) -> None:
    found = sv.tornado(base, CYCLES, spread=0.1, progress=False)
    costs = base.resolved["host"]["cost"]
    rows = {row["parameter"].removeprefix("host.cost."): row for row in found.frame.to_dicts()}
    for name in ("t_world", "t_loop", "h_cpuid"):
        row = rows[name]
        assert row["at_high"] - found.base == pytest.approx(row["high"] - costs[name], abs=0.1)
        assert row["at_low"] - found.base == pytest.approx(row["low"] - costs[name], abs=0.1)
    assert next(iter(rows)) == "t_world"  # the largest of them
    for name in ("h_icr", "t_sched_in", "h_hlt"):
        assert rows[name]["swing"] == 0
    assert "assumed" in rows["h_cpuid"]["source"]
    assert not any(row["flips"] for row in rows.values())
    assert "t_world" in found._repr_html_()


def test_a_conclusion_that_turns_around_is_marked(base: sv.Scenario) -> None:
    """Kernel 6.1 and 6.12 differ in a HLT fastpath; without its advantage there is none."""
    halts = base.with_(host={"kernel": "6.1"}).set("kvm.idle_hlt", False)
    halts = sv.Scenario.from_dict(
        {
            **halts.resolved,
            "vm": [{"pin": [0], "workload": {"kind": "idle_hlt_test", "iterations": ITERATIONS}}],
        }
    )
    effect = sv.Effect("kvm.idle_hlt", False, True)
    ranges = {"host.cost.t_halt_abort": (1, 4000), "host.cost.h_cpuid": (50, 200)}
    found = sv.tornado(halts, CYCLES, ranges, effect=effect, progress=False)
    rows = {row["parameter"]: row for row in found.frame.to_dicts()}
    assert found.unit == "%"
    assert rows["host.cost.t_halt_abort"]["flips"]
    assert rows["host.cost.t_halt_abort"]["at_low"] < 0 < rows["host.cost.t_halt_abort"]["at_high"]
    assert not rows["host.cost.h_cpuid"]["flips"]
    assert rows["host.cost.h_cpuid"]["swing"] == 0


def test_sobol_shares_out_the_variance(base: sv.Scenario) -> None:
    """Of a sum, the share of each term is its own variance."""
    ranges = {
        "host.cost.t_world": (700, 900),
        "host.cost.t_loop": (200, 300),
        "host.cost.h_icr": (100, 200),
    }
    found = sv.sobol(base, CYCLES, ranges, samples=128, progress=False)
    rows = {row["parameter"].rpartition(".")[2]: row for row in found.frame.to_dicts()}
    expected = {"t_world": 0.8, "t_loop": 0.2, "h_icr": 0.0}  # 200^2 and 100^2 of their sum
    for name, share in expected.items():
        assert rows[name]["total"] == pytest.approx(share, abs=0.08)
        assert abs(rows[name]["first"] - share) <= rows[name]["first_conf"] + 0.05
    assert list(rows) == ["t_world", "t_loop", "h_icr"]
    flat = sv.sobol(base, CYCLES, ["host.cost.h_icr"], samples=2, progress=False)
    assert flat.frame["total"].to_list() == [0.0]


def test_mistakes(base: sv.Scenario, cli: Cli, small_file: object) -> None:
    with pytest.raises(sv.UserError, match=r"did you mean host\.cost\.t_world"):
        sv.tornado(base, CYCLES, "host.cost.t_wrld")
    with pytest.raises(sv.UserError, match="low < high"):
        sv.tornado(base, CYCLES, {"host.cost.t_world": (2, 1)})
    with pytest.raises(sv.UserError, match=r"powers of two alone.*did you mean 64"):
        sv.sobol(base, CYCLES, samples=60)
    with pytest.raises(sv.UserError, match="no such metric"):
        sv.tornado(base, "workload.nothing", "host.cost.t_world", progress=False)
    done = cli(
        "sensitivity", small_file, "-m", CYCLES, "-p", "host.cost.h_hlt", "--effect",
        "kvm.idle_hlt=false,true", "--json", "-",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["parameters"]
    assert row["swing"] > 0
    assert cli("sensitivity", small_file, "-m", CYCLES, "--effect", "kvm.idle_hlt").returncode == 2
