"""What an exit costs, by kind.

The microbenchmarks of kvm-unit-tests' vmexit, 500 iterations each: the time from kvm_exit to
kvm_entry. An exit to user space costs many times one that the kernel handles.
"""

import svmsim as sv

results = {}
for kind in ("cpuid", "vmcall", "wrmsr", "inl_from_kernel", "inl_from_qemu"):
    vm = {"pin": [0], "workload": {"kind": kind, "iterations": 500}}
    results[kind] = sv.Scenario.from_dict({"vm": [vm]}).run(events=True)
axes = sv.plot.handling_times(results, title="Exit to entry, by microbenchmark")
sv.plot.save(axes.figure, "exit_costs", ["svg"])
