from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

import svmsim as sv
from conftest import ROOT, Cli

DATA = ROOT / "tests" / "data" / "vmcb"


def kvm_page() -> bytearray:
    """A page that VMRUN accepts."""
    page = bytearray(4096)

    def put(offset: int, text: str, *values: int) -> None:
        struct.pack_into("<" + text, page, offset, *values)

    put(0x00, "IIIIII", 0x01100010, 0x00FF00FF, 0x00060042, 0xBDCC8027, 0x627F, 0)
    put(0x3C, "HH", 128, 3000)
    put(0x40, "QQ", 0x100000, 0x110000)
    put(0x58, "I", 1)
    put(0x60, "I", 0x01000000)
    put(0x70, "Q", 0x78)
    put(0x90, "Q", 1)
    put(0xB0, "Q", 0x120000)
    put(0x410, "HHIQ", 0x10, 0x29B, 0xFFFFFFFF, 0)
    put(0x420, "HHIQ", 0x18, 0xC93, 0xFFFFFFFF, 0)
    put(0x484, "I", 0xFFF)
    put(0x492, "H", 0x8B)
    put(0x4D0, "Q", 0x1500)
    put(0x548, "QQQQQQQ", 0x20, 0x1000, 0x80010001, 0x400, 0xFFFF0FF0, 2, 0x100000)
    put(0x668, "Q", 0x0007040600070406)
    return page


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "vmcb.bin"
    path.write_bytes(kvm_page())
    return path


def test_legal_page(cli: Cli, page: Path) -> None:
    done = cli("vmcb", "explain", page)
    assert done.returncode == 0, done.stderr
    assert "no rule that can be judged is violated" in done.stdout
    assert "VMEXIT_HLT" in done.stdout
    assert "Suspicious" not in done.stdout
    assert "V_INTR_MASKING" in done.stdout
    assert "\x1b" not in done.stdout


def test_violated_rule_is_status_1(cli: Cli, page: Path) -> None:
    data = kvm_page()
    data[0x58] = 0
    page.write_bytes(data)
    done = cli("vmcb", "explain", page, "--json", "-")
    assert done.returncode == 1
    report = json.loads(done.stdout)
    assert [finding["id"] for finding in report["violations"]] == ["asid_zero"]
    assert report["violations"][0]["section"] == "15.5.1"
    assert report["legal"] is False


def test_page_of_zeros(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "zeros"
    path.write_bytes(bytes(4096))
    done = cli("vmcb", "explain", path)
    assert done.returncode == 1
    for text in ("EFER.SVME is 0", "the guest ASID is 0", "the VMRUN intercept is clear"):
        assert text in done.stdout


@pytest.mark.parametrize("name", ["kvm-6.16-snp", "kvm-6.18-avic-v_irq", "mail-quoted-folded-cut"])
def test_reports_are_as_recorded(cli: Cli, name: str, tmp_path: Path) -> None:
    (tmp_path / f"{name}.txt").write_bytes((DATA / f"{name}.txt").read_bytes())
    seen = [line.rstrip() for line in cli("vmcb", "explain", f"{name}.txt").stdout.splitlines()]
    assert seen == (DATA / f"{name}.report.txt").read_text().splitlines()


def test_features_and_profile(cli: Cli) -> None:
    path = DATA / "kvm-6.18-avic-v_irq.txt"
    report = json.loads(cli("vmcb", "explain", path, "--profile", "turin", "--json", "-").stdout)
    assert not any(item["id"] == "feature_missing" for item in report["unjudged"])
    assert not any(item["id"] == "avic_without_feature" for item in report["suspicions"])
    done = cli("vmcb", "explain", path, "--profile", "turin", "--features", "-avic", "--json", "-")
    ids = {item["id"] for item in json.loads(done.stdout)["suspicions"]}
    assert {"avic_without_feature", "avic_with_v_irq"} <= ids
    done = cli("vmcb", "explain", path, "--features", "np,vgiff")
    assert done.returncode == 2
    assert "did you mean vgif" in done.stderr


def test_several_dumps(cli: Cli) -> None:
    path = DATA / "kvm-6.8-two-vcpus-mixed.txt"
    first = cli("vmcb", "explain", path)
    assert first.returncode == 1
    assert "V_NMI_ENABLE is 1, but the NMI intercept is clear" in first.stdout
    second = cli("vmcb", "explain", path, "--dump", "2")
    assert second.returncode == 0
    assert "OUT port 0x3f8" in second.stdout or "IN port 0x3f8" in second.stdout
    third = cli("vmcb", "explain", path, "--dump", "3")
    assert third.returncode == 2
    assert "there is no dump 3" in third.stderr


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"\x7fELF" + bytes(60), "is an ELF file"),
        (b"hello\n", "has no VMCB dump of KVM"),
        (bytes(8192), "has 8192 bytes; a VMCB page has 4096"),
        (b"\x1f\x8b" + b"\x01" * 30, "gzip"),
    ],
)
def test_wrong_files(cli: Cli, tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "wrong"
    path.write_bytes(content)
    done = cli("vmcb", "explain", path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith(f"{path}: ")
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    with pytest.raises(sv.VmcbError, match=r"wrong"):
        sv.explain_vmcb(path)


def test_missing_file_and_directory(cli: Cli, page: Path) -> None:
    done = cli("vmcb", "explain", page.with_name("vmcb.bim"))
    assert done.returncode == 2
    assert "did you mean" in done.stderr
    assert cli("vmcb", "explain", page.parent).returncode == 2


def test_input_is_not_overwritten(cli: Cli, page: Path) -> None:
    assert cli("vmcb", "explain", page, "--json", page).returncode == 2
    assert page.read_bytes() == bytes(kvm_page())


def test_python_api(page: Path) -> None:
    report = sv.explain_vmcb(page, features=["np", "nrips"], physical_address_bits=48)
    assert report["legal"] is True
    names = {field["name"] for group in report["groups"] for field in group["fields"]}
    assert {"int_ctl", "cs", "efer", "exit_code"} <= names


def test_hlt_table_in_docs_is_what_the_tool_makes(cli: Cli, root: Path, tmp_path: Path) -> None:
    done = cli("describe", "hlt", "-o", tmp_path / "hlt.md")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "hlt.md").read_text() == (root / "docs/hlt-table.md").read_text()
    table = json.loads(cli("describe", "hlt", "--json", "-").stdout)
    assert table["settings"] == 8640
    assert any(row["differ"] for row in table["rows"])
    text = cli("describe", "hlt").stdout
    assert "differ" in text
    assert "IDLE_HLT" in text


def test_describe_exits_and_knobs(cli: Cli, root: Path) -> None:
    exits = json.loads(cli("describe", "exits", "--json", "-").stdout)
    assert {"hlt", "idle-halt"} <= {record["name"] for record in exits["exit_codes"]}
    knobs = json.loads(cli("describe", "knobs", "--json", "-").stdout)["knobs"]
    declared = {record["path"].rpartition(".")[2] for record in knobs}
    members = set()
    for path, name in (("svm/knobs.hpp", "Knobs"), ("apic/avic/knobs.hpp", "AvicKnobs")):
        header = (root / path).read_text()
        body = header[header.index(f"struct {name} {{") :]
        members |= {
            line.split("=")[0].split()[-1]
            for line in body[: body.index("};")].splitlines()
            if "=" in line.split("//")[0]
        }
    assert members == declared
    for record in knobs:
        assert record["doc"], record["path"]
        assert record["default"] is not None, record["path"]
        reasons = ("12.", "APM", "erratum", "arch/x86")
        assert any(reason in record["source"] for reason in reasons), record["path"]


def test_other_topics_have_no_output_file(cli: Cli) -> None:
    assert cli("describe", "knobs", "-o", "x.md").returncode == 2
