"""Does idle HLT help? The campaign of idle_hlt.toml in Python, and its answer."""

from pathlib import Path

import svmsim as sv

here = Path(__file__).parents[1]
pair = {"vcpus": 2, "pin": [0, 1]}
wake_back = {"kind": str(here / "programs" / "wake_back.toml"), "rounds": 200}
campaign = sv.Campaign(
    sv.Scenario.load(here / "idle_hlt.toml"),
    sweep={
        "kvm.idle_hlt": [False, True],
        "kvm.avic": [False, True],
        "kvm.halt_poll_ns": [0, 50_000, 200_000, 400_000],
        "workload": {
            "self_ipi": {"vm.workload": {"kind": "idle_hlt_test", "iterations": 2000}},
            "ping_pong": {
                "host.pcpus": 2, "vm": {**pair, "workload": {"kind": "ping_pong", "rounds": 1000}}
            },
            "wake_back": {"host.pcpus": 2, "vm": {**pair, "workload": wake_back}},
        },
    },
    seeds=range(1, 6),
    name="idle-hlt",
)  # fmt: skip
table = campaign.run("out/idle-hlt")
print(table.compare("kvm.idle_hlt", ["exits", "exits.hlt.count", "busy_ns"]).frame)
