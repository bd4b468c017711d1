from __future__ import annotations

import dataclasses
import datetime
import decimal
import json
import pickle
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import svmsim as sv
from svmsim._toml import overrides, toml_value

DICT: dict[str, Any] = {
    "kvm": {"avic": False},
    "vm": [{"pin": [0], "workload": {"kind": "idle_hlt_test", "iterations": 100}}],
}


def test_file_and_dict_give_the_same_scenario(small: sv.Scenario) -> None:
    assert sv.Scenario.from_dict(DICT).set("host.kernel", "6.12") == small
    assert hash(sv.Scenario.from_dict(DICT)) == hash(small)


def test_resolved_has_every_default_and_is_a_copy(small: sv.Scenario) -> None:
    resolved = small.resolved
    assert resolved["host"]["hz"] == 250
    assert resolved["vm"][0]["workload"]["setup_msr_writes"] == 53
    resolved["host"]["hz"] = 1
    assert small.resolved["host"]["hz"] == 250
    assert sv.Scenario.from_dict(small.resolved) == small


def test_with_changes_a_copy(small: sv.Scenario) -> None:
    changed = small.with_(kvm={"idle_hlt": False}, **{"vm.vm0.workload.iterations": 5})
    assert changed.resolved["kvm"]["idle_hlt"] is False
    assert changed.resolved["vm"][0]["workload"]["iterations"] == 5
    assert small.resolved["kvm"]["idle_hlt"] is True
    assert changed != small
    assert changed.set("kvm.idle_hlt", True).set("vm.workload.iterations", 100) == small


def test_defaults_follow_a_changed_kernel(small: sv.Scenario) -> None:
    later = small.set("host.kernel", "6.18")
    assert later == sv.Scenario.from_dict({"host": {"kernel": "6.18"}, **DICT})


def test_immutable(small: sv.Scenario) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        small._name = "other"  # type: ignore[misc]


def test_pickles_without_its_file(small: sv.Scenario, small_file: Path) -> None:
    packed = pickle.dumps(small.set("run.seed", 3))
    small_file.unlink()
    scenario = pickle.loads(packed)
    assert scenario == small.set("run.seed", 3)
    assert scenario.run().exit_totals["msr"]["count"] == 253


def test_errors_carry_problems_and_pickle(small: sv.Scenario) -> None:
    with pytest.raises(sv.ScenarioError) as caught:
        small.with_(kvm={"idle_htl": True, "avic": 3})
    problems = pickle.loads(pickle.dumps(caught.value)).problems
    assert [set(problem) for problem in problems] == [
        {"source", "line", "path", "message", "nearest"}
    ] * 2
    nearest = {problem["path"]: problem["nearest"] for problem in problems}
    assert nearest == {"kvm.idle_htl": "kvm.idle_hlt", "kvm.avic": ""}
    assert len(str(caught.value).splitlines()) == 2
    assert isinstance(caught.value, sv.UserError)


def test_values_of_other_types(small: sv.Scenario) -> None:
    assert small.set("run.seed", np.int64(3)) == small.set("run.seed", 3)
    assert small.set("vm.pin", (0,)) == small
    assert small.set("vm.pin", range(1)) == small
    assert small.set("kvm.avic", np.bool_(False)) == small
    for value in (None, object(), {1, 2}):
        with pytest.raises(sv.ScenarioError, match=r"kvm\.avic: .* has no TOML form"):
            small.set("kvm.avic", value)
    with pytest.raises(sv.ScenarioError, match=r"kvm\.avic: .* has no TOML form"):
        sv.Scenario.from_dict({"kvm": {"avic": None}})


def test_runs_are_equal_in_one_process_and_count_right(small: sv.Scenario) -> None:
    first, second = (small.run().to_dict() for _ in range(2))
    assert first.pop("wall_time_s") >= 0
    second.pop("wall_time_s")
    assert first == second
    assert {name: e["count"] for name, e in first["exits"].items() if name != "interrupt"} == {
        "msr": 253,
        "vintr": 100,
    }


def test_result_carries_the_resolved_scenario(small: sv.Scenario) -> None:
    assert small.run().scenario == small.resolved


def test_progress_is_reported_and_can_stop_a_run(small: sv.Scenario) -> None:
    class StopError(Exception):
        pass

    shares: list[float] = []

    def stop(share: float) -> None:
        shares.append(share)
        if len(shares) >= 3:
            raise StopError

    endless = small.set("vm.workload.iterations", 2_000_000_000)
    with pytest.raises(StopError):
        endless.run(progress=stop)
    assert all(share == -1 or 0 <= share <= 1 for share in shares)
    assert small.run().exit_totals["msr"]["count"] == 253  # the process can go on simulating


def test_trace_into_a_missing_directory(small: sv.Scenario, tmp_path: Path) -> None:
    small.run(trace=tmp_path / "new" / "a.trace")
    assert "kvm_entry" in (tmp_path / "new" / "a.trace").read_text()
    with pytest.raises(sv.UserError, match="is a directory"):
        small.run(trace=tmp_path)


_VALUES = st.recursive(
    st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner),
    max_leaves=8,
)


@given(_VALUES)
def test_values_survive_toml(value: Any) -> None:
    text = toml_value("key", value)
    assert "\n" not in text
    back = tomllib.loads(f"key = {text}")["key"]
    assert json.dumps(back) == json.dumps(value)


def test_nested_changes_become_overrides() -> None:
    changes = {
        "kvm": {"avic": True, "halt_poll_ns": 0},
        "vm.a.pin": [0, 1],
        "host": {"cost": {"t": 1.5}},
    }
    assert list(overrides(changes)) == [
        "kvm.avic=true",
        "kvm.halt_poll_ns=0",
        "vm.a.pin=[0, 1]",
        "host.cost.t=1.5",
    ]


def test_numpy_arrays_and_scalars() -> None:
    workload = {"kind": np.str_("idle_hlt_test"), "iterations": np.array(100)}
    vm = {"pin": np.array([0]), "workload": workload}
    scenario = sv.Scenario.from_dict({"kvm": {"avic": np.bool_(False)}, "vm": [vm]})
    assert scenario == sv.Scenario.from_dict(DICT)


def _recursive() -> dict[str, Any]:
    table: dict[str, Any] = {}
    table["x"] = [table]
    return table


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (float("nan"), "kvm.x"),
        (np.float64("inf"), "kvm.x"),
        (np.array([1.0, np.nan]), r"kvm.x\[1\]"),
        (decimal.Decimal(1), "kvm.x"),
        (np.longdouble(1), "kvm.x"),
        (np.datetime64("2024-01-01"), "kvm.x"),
        (datetime.date(2024, 1, 1), "kvm.x"),
        (2**64, "kvm.x"),
        pytest.param(10**5000, "kvm.x", id="5001 digits"),
        ({1: 0, "1": 0}, "kvm.x.1"),
        ({"y": "\ud800"}, "kvm.x.y"),
        ({"\ud800": 1}, "kvm.x"),
        (_recursive(), "kvm.x.x"),
        (b"x", "kvm.x"),
    ],
)
def test_what_no_scenario_can_hold_is_named(small: sv.Scenario, value: Any, path: str) -> None:
    with pytest.raises(sv.ScenarioError, match=f"^<dict>: {path}"):
        sv.Scenario.from_dict({"kvm": {"x": value}})
    with pytest.raises(sv.ScenarioError, match=f": {path}"):
        small.with_(kvm={"x": value})


def test_from_dict_of_no_mapping() -> None:
    values: list[Any] = [[], "kvm", 3, None]
    for value in values:
        with pytest.raises(sv.ScenarioError):
            sv.Scenario.from_dict(value)


def test_overrides_of_load(small_file: Path) -> None:
    one = sv.Scenario.load(small_file, "kvm.idle_hlt=false")
    assert one == sv.Scenario.load(small_file, ["kvm.idle_hlt=false"])
    assert one.resolved["kvm"]["idle_hlt"] is False
    for wrong in ([3], ["kvm.avic=\udcff"]):
        with pytest.raises(sv.ScenarioError, match="--set"):
            sv.Scenario.load(small_file, wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["a\0b", "a\udcff"])
def test_impossible_file_names(small: sv.Scenario, tmp_path: Path, name: str) -> None:
    with pytest.raises(sv.ScenarioError):
        sv.Scenario.load(tmp_path / name)
    with pytest.raises(sv.ScenarioError):
        sv.Scenario.from_dict(DICT, base_dir=tmp_path / name)
    with pytest.raises(sv.UserError):
        small.run(trace=tmp_path / name)
