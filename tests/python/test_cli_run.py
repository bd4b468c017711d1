from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from conftest import Cli

EXIT_KEYS = [
    "count",
    "time_ns",
    "min_ns",
    "max_ns",
    "mean_ns",
    "handling_ns",
    "polling_ns",
    "blocked_ns",
    "runqueue_ns",
    "cstate_ns",
    "error_pct",  # which perf's layout shows
]
STATISTICS = {
    "exits",
    "halt_exits",
    "halt_attempted_poll",
    "halt_successful_poll",
    "halt_wakeup",
    "halt_poll_success_ns",
    "halt_poll_fail_ns",
    "halt_wait_ns",
    "halt_poll_success_hist",
    "halt_poll_fail_hist",
    "halt_wait_hist",
}


def test_result_json_has_exactly_the_documented_keys(cli: Cli, small_file: Path) -> None:
    done = cli("run", small_file, "--json", "-")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)  # nothing but JSON on standard output
    assert list(result) == [
        "schema",
        "version",
        "scenario",
        "sim_time_ns",
        "wall_time_s",
        "exits",
        "halt",
        "busy_reason",
        "vcpus",
        "pcpus",
        "latency",
        "tasks",
        "migrations",
        "apicv_inhibits",
        "advice",
        "workload",
    ]
    assert result["schema"] == 1
    assert result["exits"]["msr"]["count"] == 253
    for values in result["exits"].values():
        assert list(values) == EXIT_KEYS
    (vcpu,) = result["vcpus"]
    assert list(vcpu) == ["vm", "vcpu", "exits", "halt", "stats"]
    assert set(vcpu["stats"]) >= STATISTICS
    assert vcpu["exits"] == result["exits"]
    (pcpu,) = result["pcpus"]
    times = ["guest_ns", "host_ns", "poll_ns", "task_ns", "idle_ns"]
    assert list(pcpu) == ["pcpu", *times, "context_switches", "timer_interrupts"]
    assert set(result["latency"]) >= {"wakeup", "ipi"}
    assert result["workload"]["kind"] == "idle_hlt_test"
    assert result["workload"]["metrics"]["iterations"] == 100


def test_exits_split_without_rest(cli: Cli, small_file: Path) -> None:
    done = cli("run", small_file, "--json", "-")
    for name, values in json.loads(done.stdout)["exits"].items():
        parts = ("handling_ns", "polling_ns", "blocked_ns", "runqueue_ns", "cstate_ns")
        total = sum(values[part] for part in parts)
        # Each part is rounded to ns on its own.
        assert abs(total - values["time_ns"]) <= len(parts), name


def test_run_prints_perf_layout_split_and_shares(cli: Cli, small_file: Path) -> None:
    done = cli("run", small_file)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "VM-EXIT    Samples  Samples%" in done.stdout
    for word in ("handling", "polling", "blocked", "run queue", "C-state", "guest", "host"):
        assert word in done.stdout
    assert "iterations 100" in done.stdout


def test_two_runs_differ_in_wall_time_only(cli: Cli, small_file: Path, tmp_path: Path) -> None:
    texts = []
    traces = []
    for index in range(2):
        target = tmp_path / "made" / f"{index}.json"  # the directory does not exist yet
        trace = tmp_path / f"{index}.trace"
        assert cli("run", small_file, "--json", target, "--trace", trace).returncode == 0
        traces.append(trace.read_bytes())
        lines = target.read_text().splitlines()
        without = [line for line in lines if '"wall_time_s"' not in line]
        assert len(without) == len(lines) - 1
        texts.append(without)
    assert texts[0] == texts[1]
    assert traces[0] == traces[1]


def test_set_and_seed_reach_the_scenario(cli: Cli, small_file: Path) -> None:
    done = cli("run", small_file, "--set", "kvm.idle_hlt=false", "--seed", 7, "--json", "-")
    result = json.loads(done.stdout)
    assert result["scenario"]["kvm"]["idle_hlt"] is False
    assert result["scenario"]["run"]["seed"] == 7
    assert result["exits"]["hlt"]["count"] == 100


def test_trace_is_ftrace_text(cli: Cli, small_file: Path, tmp_path: Path) -> None:
    trace = tmp_path / "deep" / "run.trace"
    done = cli("run", small_file, "--trace", trace)
    assert done.returncode == 0, done.stderr
    text = trace.read_text()
    assert text.count(": kvm_exit: ") >= 300
    assert "reason vintr" in text
    assert "reason hlt" not in text


def test_run_and_describe_import_no_frames_or_pictures(small_file: Path) -> None:
    code = f"""
import sys
from svmsim._commands import app
try:
    app(["run", {str(small_file)!r}])
except SystemExit as left:
    assert not left.code
heavy = {{"polars", "matplotlib", "numpy", "dask", "scipy"}} & set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_peak_memory_of_run_is_far_below_200_mb(root: Path) -> None:
    code = f"""
import sys
from svmsim._commands import app
try:
    app(["run", {str(root / "examples" / "idle_hlt.toml")!r}])
except SystemExit as left:
    assert not left.code
with open("/proc/self/status") as status:  # of this program alone, not of what started it
    (peak,) = [line.split()[1] for line in status if line.startswith("VmHWM")]
print(peak, file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert int(done.stderr) < 100 * 1024  # KiB


def test_python_m_svmsim_and_version(cli: Cli) -> None:
    import svmsim

    assert cli("--version").stdout == f"svmsim {svmsim.__version__}\n"
