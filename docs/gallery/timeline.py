"""What every pCPU and vCPU does, to the nanosecond.

Half a millisecond of two vCPUs that wake each other, as halt polling learns: first it polls in
vain, then long enough. `svmsim run --perfetto FILE` gives the same for a whole run, to be zoomed
into.
"""

import svmsim as sv

scenario = sv.Scenario.from_dict(
    {
        "host": {"pcpus": 2},
        "kvm": {"avic": False},
        "vm": [
            {"vcpus": 2, "pin": [0, 1], "workload": {"kind": "examples/programs/wake_back.toml"}}
        ],
    }
)
result = scenario.run(events=True)
axes = sv.plot.timeline(result, begin_ns=300_000, end_ns=800_000, title="Halt polling learns")
sv.plot.save(axes.figure, "timeline", ["svg"])
