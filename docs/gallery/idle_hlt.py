"""What the idle-HLT intercept removes.

The guest of the idle-HLT patch series sends itself an interrupt with IF = 0 and executes STI;HLT.
With the HLT intercept every HLT exits; with the idle-HLT intercept none does, since the interrupt
is pending already.
"""

import svmsim as sv

base = sv.Scenario.load("examples/idle_hlt.toml", ["vm.workload.iterations=2000"])
results = [base.set("kvm.idle_hlt", on).run() for on in (False, True)]
axes = sv.plot.exit_counts(results, by="kvm.idle_hlt", title="Idle HLT removes the hlt exits")
sv.plot.save(axes.figure, "idle_hlt", ["svg"])
