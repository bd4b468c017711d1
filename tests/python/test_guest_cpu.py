"""Vmcb, Environment and GuestCpu: a guest by hand, step by step."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import svmsim as sv
from svmsim import _core


def test_a_vmcb_is_a_page_of_named_fields() -> None:
    vmcb = sv.Vmcb(asid=3, intercepts=["HLT", "-VMMCALL"], int_ctl={"v_irq": 1, "v_tpr": 9})
    assert vmcb.asid == 3
    assert vmcb.intercepts == ["HLT", "SHUTDOWN", "VMRUN"]
    assert vmcb["int_ctl.v_irq"] == 1
    assert vmcb.int_ctl == 0x109
    vmcb["cs.attrib.d"] = 1
    assert vmcb.cs.attrib & 0x400
    vmcb.cs.base = 0x1000
    vmcb.rip = 0xFFFF_FFFF_8000_0000
    data = vmcb.to_bytes()
    assert len(data) == 4096
    assert data[0x418:0x420] == (0x1000).to_bytes(8, "little")
    assert sv.Vmcb.from_bytes(data) == vmcb
    assert vmcb.copy() == vmcb
    assert sv.Vmcb() != vmcb


def test_every_field_is_an_attribute_and_in_the_stub() -> None:
    vmcb = sv.Vmcb()
    stub = (Path(__file__).parents[2] / "python" / "svmsim" / "_core.pyi").read_text()
    body = stub[stub.index("class Vmcb:") : stub.index("class Environment:")]
    declared = set(re.findall(r"^    (\w+): int$", body, re.MULTILINE))
    fields = {path for path in _core.vmcb_paths() if "." not in path}
    assert declared == fields
    for name in fields:
        assert getattr(vmcb, name) == vmcb[name]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"asdi": 1}, r'vmcb\.asdi: the VMCB has no "asdi" \(did you mean asid\?\)'),
        ({"int_ctl": {"v_tpr": 16}}, r"vmcb\.int_ctl\.v_tpr: is 0x10, but must be at most 0xf"),
        ({"intercepts": ["HALT"]}, r"did you mean HLT\?"),
        ({"asid": 2**64}, "greater than 64 bits"),
    ],
)
def test_what_a_vmcb_does_not_have(change: dict[str, object], message: str) -> None:
    with pytest.raises(sv.CaseError, match=message):
        sv.Vmcb(**change)


def test_fields_by_path_have_their_limits() -> None:
    vmcb = sv.Vmcb()
    with pytest.raises(sv.CaseError, match=r"did you mean int_ctl\.v_irq\?"):
        vmcb["int_ctl.v_irqq"]
    with pytest.raises(sv.CaseError, match="at most 0xffff"):
        vmcb.pause_filter_count = 0x10000
    with pytest.raises(sv.CaseError, match="is 5 bytes"):
        sv.Vmcb.from_bytes(b"12345")


def test_violations_name_rule_and_section() -> None:
    vmcb = sv.Vmcb(asid=0, int_ctl={"v_nmi_enable": 1})
    assert [rule["id"] for rule in vmcb.violations()] == [
        "asid_zero",
        "v_nmi_without_nmi_intercept",
    ]
    assert vmcb.violations()[1]["section"] == "15.21.10"
    assert [rule["id"] for rule in vmcb.violations(features=["-vnmi"])] == ["asid_zero"]
    assert sv.Vmcb().violations() == []


def test_a_guest_step_by_step() -> None:
    environment = sv.Environment(tsc=1000, msrs={0x10A: 7})
    cpu = sv.GuestCpu(environment)
    vmcb = sv.Vmcb(intercepts=["HLT"], tsc_offset=5)
    assert cpu.vmrun(vmcb).kind == "entered"
    assert (cpu.running, cpu.gif) == (True, True)
    assert cpu.step("rdmsr", msr=0x10A).result == 7
    assert cpu.step("wrmsr msr=0x10b value=9").kind == "retired"
    assert environment.msrs[0x10B] == 9
    assert cpu.step("compute", cycles=100).kind == "retired"
    assert cpu.step("rdtsc").result == 1105
    before = cpu.rip
    step = cpu.step("hlt")
    assert (step.kind, step.exit_code, step.exit) == ("vmexit", 0x78, "HLT (78h)")
    assert (vmcb.rip, vmcb.next_rip) == (before, before + 1)
    assert (cpu.running, cpu.gif) == (False, False)
    assert cpu.vmcb is vmcb


def test_events_reach_the_guest_at_boundaries() -> None:
    cpu = sv.GuestCpu()
    cpu.vmrun(sv.Vmcb(rflags={"if": 1}))
    assert cpu.boundary().kind == "none"
    assert cpu.execute("hlt").kind == "halted"
    assert cpu.halted
    cpu.environment.arrive(intr=0x51)
    step = cpu.step("nop")
    assert (step.kind, step.vector) == ("delivered", 0x51)
    assert cpu.frames == 1
    assert cpu.environment.interrupts_pending == []
    assert cpu.step("iret").kind == "retired"
    assert cpu.frames == 0


def test_knobs_features_and_limits() -> None:
    vmcb = sv.Vmcb(intercepts=["IDLE_HLT"], int_ctl={"v_irq": 1, "v_intr_prio": 5})
    for reading, kind in (("raw", "halted"), ("priority", "halted"), ("deliverable", "vmexit")):
        cpu = sv.GuestCpu(knobs={"idle_hlt_pending": reading})
        cpu.vmrun(vmcb.copy())
        assert cpu.step("hlt").kind == kind
    cpu = sv.GuestCpu(features=["-idle_hlt"])
    cpu.vmrun(sv.Vmcb(intercepts=["IDLE_HLT"]))
    assert cpu.step("hlt").kind == "halted"
    cpu = sv.GuestCpu(limits={"physical_address_bits": 40})
    assert cpu.vmrun(sv.Vmcb(cr3=1 << 41)).exit == "INVALID (-1)"
    with pytest.raises(sv.CaseError, match=r"did you mean nrips\?"):
        sv.GuestCpu(features=["-nrip"])


def test_misuse_is_an_exception_and_never_a_crash() -> None:
    cpu = sv.GuestCpu()
    with pytest.raises(RuntimeError, match="not running"):
        cpu.execute("nop")
    with pytest.raises(RuntimeError, match="not running"):
        cpu.boundary()
    cpu.vmrun(sv.Vmcb())
    with pytest.raises(RuntimeError, match="is running"):
        cpu.vmrun(sv.Vmcb())
    with pytest.raises(sv.CaseError, match=r"did you mean hlt\?"):
        cpu.execute("hltt")
    with pytest.raises(sv.CaseError, match="is not a known key"):
        cpu.execute("hlt", msr=5)
    with pytest.raises(ValueError, match="one action"):
        cpu.execute("nop repeat=2")
    cpu.execute("hlt")
    with pytest.raises(RuntimeError, match="halted"):
        cpu.execute("nop")


def test_actions_describe_themselves() -> None:
    actions = _core.describe_actions()
    assert set(actions["wrmsr"]["operands"]) == {"msr", "value"}
    assert actions["hlt"]["length"] == 1
