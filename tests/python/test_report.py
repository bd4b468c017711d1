from __future__ import annotations

import itertools
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

import svmsim as sv
from conftest import Cli
from svmsim.report import report_html
from svmsim.report.changes import Change, changes, got_worse

NASTY = '<script>alert("x")</script><img src=x onerror=alert(1)>&{{ 7 * 7 }}'


@pytest.fixture(scope="module")
def table(wake_back: sv.Scenario) -> sv.ResultTable:
    results = [
        wake_back.with_(**{"kvm.halt_poll_ns": poll, "vm.workload.work": work}).run()
        for poll, work in itertools.product((0, 200_000), (30_000, 300_000))
    ]
    made = sv.ResultTable.of(results, name="A question & its answer")
    made._about["question"] = "Does polling help?"
    return made


@pytest.fixture(scope="module")
def page(table: sv.ResultTable) -> str:
    return report_html(table)


class Page(HTMLParser):
    """Collects text by section, and whatever could reach outside."""

    VOID = ("meta", "img", "br")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.addresses: list[str] = []
        self.sections: dict[str, str] = {}
        self.section = ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in self.VOID:
            self.open.append(tag)
        names = dict(attrs)
        assert not any(name.startswith("on") for name in names)
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag == "section":
            self.section = names["id"] or ""

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.sections[self.section] = self.sections.get(self.section, "") + data


def test_it_answers_the_question(page: str) -> None:
    read = Page(page)
    assert "Does polling help?" in read.sections[""]
    verdict = read.sections["verdict"]
    assert "kvm.halt_poll_ns" in verdict
    assert "0 → 200,000: a trade: wake-up latency, mean \N{MINUS SIGN}" in verdict
    assert "but CPU time burnt +" in verdict
    assert "vm.workload.work" not in verdict  # a condition, not a choice
    assert "CPU time burnt" in read.sections["worse"]
    assert "work = 300,000" in read.sections["worse"]
    assert "VM-EXIT    Samples  Samples%     Time%" in read.sections["exits"]
    assert "kvm.idle_hlt" in read.sections["settings"]
    assert sv.__version__ in read.sections["provenance"]
    assert read.tags.count("figure") >= 4


def test_it_needs_nothing_else(page: str) -> None:
    read = Page(page)
    assert all(address.startswith("data:image/svg+xml;base64,") for address in read.addresses)
    assert not {"script", "link", "iframe", "object"} & set(read.tags)
    assert "url(" not in page
    assert "@import" not in page
    assert "default-src 'none'" in page


def test_light_dark_and_print(page: str) -> None:
    assert "prefers-color-scheme: dark" in page
    assert "@media print" in page


def test_the_same_table_gives_the_same_bytes(table: sv.ResultTable, page: str) -> None:
    assert report_html(table) == page


def test_what_came_from_a_file_is_text(wake_back: sv.Scenario) -> None:
    results = {NASTY: wake_back.run(), f"{NASTY}2": wake_back.set("kvm.halt_poll_ns", 0).run()}
    data = results[NASTY].to_dict()
    data["workload"]["failure"] = NASTY
    data["scenario"]["vm"][0]["name"] = NASTY
    data["advice"] = [{"id": "a", "text": NASTY, "setting": NASTY}]
    results[NASTY] = sv.Result(data)
    made = sv.ResultTable.of(results, name=NASTY)
    made._about["question"] = NASTY
    text = report_html(made)
    drawn = set(re.findall(r'id="picture-([a-z_-]+)"', text))
    read = Page(text)
    assert "script" not in read.tags
    assert {"exit-mix", "heat-busy"} <= drawn
    assert read.tags.count("img") == read.tags.count("figure")
    for section in ("", "exits", "advice", "failures", "settings"):
        assert NASTY in read.sections[section], section


def test_a_single_run_has_a_page_too(wake_back: sv.Scenario) -> None:
    read = Page(report_html(sv.ResultTable.of([wake_back.run()])))
    assert "verdict" not in read.sections
    assert "hlt" in read.sections["exits"]


def test_exits_of_all_vcpus_are_added_as_perf_does(
    wake_back: sv.Scenario, table: sv.ResultTable
) -> None:
    from svmsim import _core
    from svmsim.report.page import _perf_tables

    result = wake_back.with_(**{"kvm.halt_poll_ns": 0, "vm.workload.work": 30_000}).run()
    expected = _core.perf_table(result.to_json()).strip("\n")
    assert _perf_tables(table)[0]["text"] == expected


def test_changes_are_paired(table: sv.ResultTable) -> None:
    found = {change.metric: change for change in changes(table, "kvm.halt_poll_ns")}
    busy = found["busy_ns"]
    assert busy.pairs == 2
    assert (busy.old_value, busy.new_value) == ("0", "200,000")
    runs = table.runs.collect()
    means = [runs["busy_ns"][i : i + 2].to_list() for i in (0, 2)]
    assert (busy.old, busy.new) == (sum(means[0]) / 2, sum(means[1]) / 2)
    assert busy.low_pct <= (busy.pct or 0) <= busy.high_pct
    assert busy.verdict == "worse"
    assert found["exits.count"].verdict == "same"


@pytest.mark.parametrize(
    ("old", "new", "low", "high", "verdict"),
    [
        (100, 90, -12, -8, "better"),
        (100, 110, 8, 12, "worse"),
        (100, 110, -1, 21, "unclear"),
        (1000, 1001, 0.1, 0.1, "same"),
        (0, 5, 0, 0, "worse"),
        (0, 0, 0, 0, "same"),
    ],
)
def test_verdicts(old: float, new: float, low: float, high: float, verdict: str) -> None:
    assert Change("k", "a", "b", "busy_ns", "", 5, old, new, low, high).verdict == verdict


def test_what_got_worse_comes_worst_first(table: sv.ResultTable) -> None:
    found = got_worse(table, "kvm.halt_poll_ns", ("busy_ns", "latency.wakeup.mean_ns"))
    assert {change.metric for change in found} == {"busy_ns"}
    percents = [change.pct or 0 for change in found]
    assert percents == sorted(percents, reverse=True)
    assert {change.where for change in found} == {"work = 30,000", "work = 300,000"}


def test_report_command(cli: Cli, wake_back: sv.Scenario, tmp_path: Path) -> None:
    wake_back.run().save(tmp_path / "runs" / "one.json")
    done = cli("report", "runs")
    assert (done.returncode, done.stdout) == (0, "wrote runs/report.html\n"), done.stderr
    assert Page((tmp_path / "runs" / "report.html").read_text()).tags
    done = cli("report", "runs", "--out", "runs")
    assert done.returncode == 2
    assert "is a directory" in done.stderr


def test_it_fits_narrow_and_wide_windows(page: str, tmp_path: Path) -> None:
    """Nothing reaches over the edge, and every picture is shown, in a browser."""
    browser = shutil.which("chromium")
    if browser is None:
        pytest.skip("chromium is not installed")
    (tmp_path / "page.html").write_text(page)
    (tmp_path / "frame.html").write_text(
        """<!doctype html><body><script>
        const widths = [400, 1280];
        const found = [];
        for (const width of widths) {
          const frame = document.createElement("iframe");
          frame.style.width = width + "px"; frame.style.height = "800px";
          frame.onload = async () => {
            const inner = frame.contentDocument;
            await Promise.all([...inner.images].map(image => image.decode()));
            const sizes = [...inner.images].map(image => image.getBoundingClientRect().width);
            found.push([width, inner.documentElement.scrollWidth, Math.min(...sizes),
                        getComputedStyle(inner.querySelector(".verdicts")).display].join(","));
            if (found.length == widths.length) document.body.textContent = found.sort().join(";");
          };
          frame.src = "page.html";
          document.body.append(frame);
        }</script></body>"""
    )
    command = [
        browser,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--allow-file-access-from-files",
        "--virtual-time-budget=10000",
        f"--user-data-dir={tmp_path / 'profile'}",
        "--dump-dom",
        (tmp_path / "frame.html").as_uri(),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    match = re.search(r"<body>(.*?)</body>", done.stdout, re.DOTALL)
    assert match, done.stderr[-2000:]
    rows = [row.split(",") for row in match[1].split(";")]
    assert [int(row[0]) for row in rows] == [1280, 400]
    for width, scroll, smallest, display in rows:
        assert int(scroll) <= int(width), match[1]
        assert float(smallest) > 300
        assert display == "grid"
