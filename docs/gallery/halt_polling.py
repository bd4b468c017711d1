"""What halt polling gains and what it costs.

The same guest with naps of different lengths and windows of different sizes: how its halts ended,
and the CPU time that was spent polling, in vain or not.
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
results = [
    base.with_(**{"kvm.halt_poll_ns": poll, "vm.workload.work": work}).run(events=True)
    for work in (50_000, 300_000)
    for poll in (0, 50_000, 200_000)
]
figure = sv.plot.halt_story(results, by=["vm.workload.work", "kvm.halt_poll_ns"])
sv.plot.save(figure, "halt_polling", ["svg"])
