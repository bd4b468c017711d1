"""A sweep of two parameters at a glance.

A campaign over halt_poll_ns and over how long the guest naps: the mean wake-up latency of each
combination. Polling helps where the window reaches as far as the nap.
"""

import svmsim as sv

base = sv.Scenario.from_dict(
    {
        "host": {"pcpus": 2},
        "kvm": {"avic": False},
        "vm": [
            {"vcpus": 2, "pin": [0, 1], "workload": {"kind": "examples/programs/wake_back.toml"}}
        ],
    }
)
windows, naps = [0, 20_000, 50_000, 200_000, 400_000], [20_000, 100_000, 400_000, 800_000]
sweep = {"kvm.halt_poll_ns": windows, "vm.workload.work": naps}
table = sv.Campaign(base, sweep=sweep, name="naps").run("naps")
axes = sv.plot.heat_map(
    table, x="kvm.halt_poll_ns", y="vm.workload.work", value="latency.wakeup.mean_ns"
)
sv.plot.save(axes.figure, "heat_map", ["svg"])
