"""Where a wake-up spends its time.

Two vCPUs on two pCPUs wake each other by IPIs. Without polling the woken thread waits for its
pCPU to leave the idle state and for the scheduler; with halt polling KVM sees the interrupt
itself, and only the way back into the guest is left.
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
results = [base.set("kvm.halt_poll_ns", poll).run(events=True) for poll in (0, 200_000)]
figure = sv.plot.wakeup_cdf(results, by="kvm.halt_poll_ns")
sv.plot.save(figure, "wake_up_stages", ["svg"])
