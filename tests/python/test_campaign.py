"""What a campaign plans; nothing runs here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import svmsim as sv
from conftest import SMALL, Cli
from svmsim.campaign.lines import line_of


def _swept(campaign: sv.Campaign) -> list[tuple[Any, ...]]:
    return [tuple(c.swept[name] for name in campaign.sweep) for c in campaign.configurations]


def test_grid_has_the_first_axis_slowest(small: sv.Scenario) -> None:
    campaign = sv.Campaign(
        small, {"kvm.idle_hlt": [False, True], "kvm": {"halt_poll_ns": [0, "200us"]}}, seeds=3
    )
    assert _swept(campaign) == [(False, 0), (False, 200_000), (True, 0), (True, 200_000)]
    assert campaign.seeds == [1, 2, 3]
    assert len(campaign) == 12
    ids = {c.job(seed).run_id for c in campaign.configurations for seed in campaign.seeds}
    assert len(ids) == 12


def test_zip_changes_keys_together(small: sv.Scenario) -> None:
    campaign = sv.Campaign(
        small,
        {"kvm.idle_hlt": [False, True]},
        zip={"host.kernel": ["6.1", "6.12"], "kvm.halt_poll_ns": [0, 1000]},
    )
    assert _swept(campaign) == [
        (False, "6.1", 0),
        (False, "6.12", 1000),
        (True, "6.1", 0),
        (True, "6.12", 1000),
    ]


def test_when_adds_axes_where_a_condition_holds(small: sv.Scenario) -> None:
    campaign = sv.Campaign(
        small,
        {"kvm.halt_poll_ns": [0, 50_000]},
        when=sv.When({"kvm.halt_poll_ns": {"min": 1}}, {"kvm.halt_poll_ns_grow": [2, 4]}),
    )
    default = small.resolved["kvm"]["halt_poll_ns_grow"]
    assert _swept(campaign) == [(0, default), (50_000, 2), (50_000, 4)]


@pytest.mark.parametrize("method", ["sobol", "latin-hypercube"])
def test_samples_fill_the_ranges(small: sv.Scenario, method: Any) -> None:
    def make(seed: int) -> sv.Campaign:
        ranges: dict[str, Any] = {
            "host.cost.t_world": [500, 1500],
            "kvm.halt_poll_ns": sv.SampleRange(1000, 1_000_000, "log"),
        }
        sample = sv.Sample(ranges, count=16, method=method, seed=seed)
        return sv.Campaign(small, {"kvm.idle_hlt": [False, True]}, sample=sample)

    points = _swept(make(1))
    assert len(points) == 32
    assert points[:16] == [(False, *rest) for _, *rest in points[16:]]  # the same for all
    worlds = [world for _, world, _ in points[:16]]
    assert all(isinstance(world, int) and 500 <= world <= 1500 for world in worlds)
    assert len({(world - 500) * 16 // 1001 for world in worlds}) == 16  # one in each sixteenth
    assert sum(poll < 31_623 for _, _, poll in points[:16]) == 8  # the middle of the logarithm
    assert _swept(make(1)) == points
    assert _swept(make(2)) != points


def test_filters(small: sv.Scenario) -> None:
    sweep = {"kvm.idle_hlt": [False, True], "kvm.halt_poll_ns": [0, 1000, 2000]}
    both = {"kvm.idle_hlt": True, "kvm.halt_poll_ns": [0, 1000]}
    assert len(sv.Campaign(small, sweep, drop=both).configurations) == 4
    assert len(sv.Campaign(small, sweep, keep=[both]).configurations) == 2
    assert len(sv.Campaign(small, sweep, keep={"kvm.idle_hlt": {"not": True}}).configurations) == 3
    chosen = sv.Campaign(small, sweep, filter=lambda v: v["kvm.halt_poll_ns"] == 2000)
    assert _swept(chosen) == [(False, 2000), (True, 2000)]
    with pytest.raises(sv.ScenarioError, match="no configuration is left"):
        sv.Campaign(small, sweep, filter=lambda _: False)


def test_a_workload_replaces_the_whole_workload(small: sv.Scenario) -> None:
    base = small.set("vm.workload.iterations", 7)
    campaign = sv.Campaign(
        base,
        {
            "workload": {
                "self": {"vm.workload": {"kind": "idle_hlt_test", "iterations": 3}},
                "pair": {
                    "host": {"pcpus": 2},
                    "vm": {
                        "vcpus": 2,
                        "pin": [0, 1],
                        "workload": {"kind": "ping_pong", "rounds": 5},
                    },
                },
            }
        },
    )
    assert _swept(campaign) == [("self",), ("pair",)]
    assert '"iterations": 3' in campaign.configurations[0].resolved
    assert '"rounds": 5' in campaign.configurations[1].resolved
    workloads = [{"kind": "cpuid", "iterations": 1}, {"kind": "vmcall", "iterations": 1}]
    assert _swept(sv.Campaign(base, {"vm.workload": workloads})) == [("cpuid",), ("vmcall",)]


def test_a_run_is_named_by_what_decides_its_result(tmp_path: Path, small: sv.Scenario) -> None:
    def name(scenario: sv.Scenario, seed: int = 1) -> str:
        (configuration,) = sv.Campaign(scenario).configurations
        return configuration.job(seed).run_id

    assert name(small) == name(small.with_(kvm={"idle_hlt": True}))  # its value already
    assert name(small) == name(small.set("run.seed", 9))  # the campaign's seed counts
    assert name(small) != name(small, seed=2)
    assert name(small) != name(small.set("kvm.idle_hlt", False))
    program = (
        'name = "p"\ndoc = "d"\n[[parameter]]\nname = "n"\ndefault = 1\ndoc = "n"\n'
        '[repeat]\ncount = "$n"\n'
    )
    names = []
    for place, body in (("a", "cpuid"), ("b", "cpuid"), ("c", "vmmcall")):
        (tmp_path / place).mkdir()
        file = tmp_path / place / "p.toml"
        head, tail = program.split("[[parameter]]")
        file.write_text(f'{head}body = [{{ do = "{body}" }}]\n[[parameter]]{tail}')
        (configuration,) = sv.Campaign(small, {"vm.workload": [{"kind": str(file)}]}).configurations
        names.append(configuration.job(1).run_id)
    assert names[0] == names[1] != names[2]


BAD = """\
name = 3
scenario = "small.toml"
seed = 3
time_limit = "3 x"

[sweep]
"kvm.idle_htl" = [false, true]
kvm.halt_poll_ns = [0, -5, "2y"]
wrkload = [1]
vm.apic = "x2apic"

[sweep.workload.idle]
vm.workload = { kind = "idle_hlt_tset" }

[[when]]
if = { "kvm.idle" = true }
sweep = { "host.hz" = [100] }

[[when]]
if = { "kvm.halt_poll_ns" = 7 }

[[zip]]
host.kernel = ["6.1", "6.12"]
host.profile = ["zen2"]

[sample]
count = 3
ranges = { "host.cost.t_loop" = [2, 1] }

[repeat]
metrik = "x"

[set]
run.sead = 4
"""


def test_all_problems_of_a_file_at_once(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "small.toml").write_text(SMALL)
    (tmp_path / "bad.toml").write_text(BAD)
    done = cli("sweep", "bad.toml", "--out", "out")
    assert done.returncode == 2
    lines = BAD.splitlines()
    expected = [
        ("name = 3", "name: expected a text", ""),
        ("seed = 3", "seed: unknown key", "seeds"),
        ("time_limit", "time_limit: '3 x' is no time", ""),
        ('"kvm.idle_htl"', 'sweep."kvm.idle_htl": unknown key', "kvm.idle_hlt"),
        ("kvm.halt_poll_ns =", "-5ns is out of range", ""),
        ("kvm.halt_poll_ns =", '"2y" is no duration', ""),
        ("wrkload", "sweep.wrkload: is no parameter", ""),
        ("vm.apic", "expected a list of values", ""),
        ("[sweep.workload.idle]", "not a built-in program", "idle_hlt_test"),
        ('if = { "kvm.idle"', "is not swept", "kvm.idle_htl"),
        ('if = { "kvm.halt_poll_ns"', "is never 7", ""),
        ("[[zip]]", "equally many values: host.kernel 2, host.profile 1", ""),
        ("count = 3", "powers of two", "4"),
        ("ranges =", "low < high", ""),
        ("metrik", "repeat.metrik: unknown key", "metric"),
        ("[repeat]", "metric is missing", ""),
        ("run.sead", "set.run.sead: unknown key", "run.seed"),
    ]
    reported = done.stderr.splitlines()
    for start, message, nearest in expected:
        number = next(i for i, line in enumerate(lines, 1) if line.startswith(start))
        found = [x for x in reported if x.startswith(f"bad.toml:{number}: ") and message in x]
        assert len(found) == 1, (start, message, done.stderr)
        assert (f"did you mean {nearest}?" in found[0]) or not nearest, found
    assert len(reported) == len(expected)
    assert not (tmp_path / "out").exists()


def test_problems_of_the_scenario_have_its_lines(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(SMALL.replace("idle_hlt = true", "idle_htl = true"))
    (tmp_path / "c.toml").write_text('scenario = "small.toml"\nsweeep = 1\n')
    with pytest.raises(sv.ScenarioError) as caught:
        sv.Campaign.load(tmp_path / "c.toml")
    text = str(caught.value)
    assert "small.toml:8: kvm.idle_htl: unknown key" in text
    assert "c.toml:2: sweeep: unknown key (did you mean sweep?)" in text
    (tmp_path / "c.toml").write_text('scenario = "smal.toml"\n')
    with pytest.raises(
        sv.ScenarioError, match=r"c\.toml:1: scenario: .*did you mean .*small\.toml"
    ):
        sv.Campaign.load(tmp_path / "c.toml")
    (tmp_path / "c.toml").write_text('scenario = "small.toml\n')
    with pytest.raises(sv.ScenarioError, match=r"c\.toml:1: is not TOML"):
        sv.Campaign.load(tmp_path / "c.toml")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda s: sv.Campaign(s, {"kvm.avik": [True]}), "did you mean kvm.avic"),
        (lambda s: sv.Campaign(s, seeds=[1, 1]), "a seed is there twice"),
        (lambda s: sv.Campaign(s, seeds=[-1]), "-1 is no seed"),
        (lambda s: sv.Campaign(s, seeds=0), "at least one seed"),
        (lambda s: sv.Campaign(s, {"run.seed": [1, 2]}), "did you mean seeds"),
        (lambda s: sv.Campaign(s, {"kvm.idle_hlt": []}), "has no values"),
        (lambda s: sv.Campaign(s, time_limit_s=0), "more than 0"),
        (lambda s: sv.Campaign(s, compare="kvm.idle"), "compare"),
        (lambda s: sv.Campaign(s, repeat=sv.Repeat("exits", width=0)), "repeat.width"),
        (lambda s: sv.Campaign(s, repeat=sv.Repeat("exits", at_most=2)), "at_least or more"),
    ],
)
def test_mistakes_in_python(
    small: sv.Scenario, make: Callable[[sv.Scenario], Any], message: str
) -> None:
    with pytest.raises(sv.ScenarioError, match=message):
        make(small)


def test_lines_of_keys() -> None:
    text = '# [a]\nx = """\n[b]\n"""\n[a.b]\nc = [\n  { d = 1 },\n]\n"e.f" = 2 # x = 1\n'
    text += "[[g]]\n[[g]]\nh = 1\n"
    assert line_of(text, ["x"]) == 2
    assert line_of(text, ["a", "b", "c"]) == 6
    assert line_of(text, ["a", "b", "e.f"]) == 9
    assert line_of(text, ["a"]) == 5
    assert line_of(text, ["g", "[1]", "h"]) == 12
    assert line_of(text, ["g", "[1]", "zz"]) == 11
    assert line_of(text, ["b"]) == 0


def test_dry_run_lists_the_configurations(tmp_path: Path, small_file: Path, cli: Cli) -> None:
    text = (
        f'scenario = "{small_file.name}"\nseeds = [5, 7]\n[sweep]\nkvm.idle_hlt = [false, true]\n'
    )
    (tmp_path / "c.toml").write_text(text)
    done = cli("sweep", "c.toml", "--out", "out", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "2 configurations, 2 seeds, 4 runs" in done.stdout
    assert not (tmp_path / "out").exists()


def test_paths_are_relative_to_the_file_they_stand_in(tmp_path: Path) -> None:
    for place in ("campaigns", "programs"):
        (tmp_path / place).mkdir()
    (tmp_path / "small.toml").write_text(SMALL)
    program = 'name = "p"\ndoc = "d"\nbody = [{ do = "cpuid" }]\n[repeat]\ncount = 1\n'
    (tmp_path / "programs" / "p.toml").write_text(program)
    file = tmp_path / "campaigns" / "c.toml"
    file.write_text(
        'scenario = "../small.toml"\n[sweep]\n'
        'vm.workload = [{ kind = "../programs/p.toml" }, { kind = "cpuid" }]\n'
    )
    first, second = sv.Campaign.load(file).configurations
    assert str(tmp_path / "programs" / "p.toml") in first.inputs
    assert second.swept == {"vm.workload": "cpuid"}


def test_every_campaign_among_the_examples(root: Path) -> None:
    files = sorted((root / "examples" / "campaigns").glob("*.toml"))
    assert files
    for file in files:
        assert len(sv.Campaign.load(file)) > 1
        assert file.with_suffix(".py").is_file()
