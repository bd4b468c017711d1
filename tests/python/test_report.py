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
from svmsim._directory import load_results
from svmsim.analysis.comparison import Change, Verdict
from svmsim.report import report_html
from svmsim.report.changes import Line, Step, worst

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
    # Two runs of each value, with workloads that gain and pay differently.
    assert "0 → 200,000: unclear, more seeds are needed: CPU time burnt +" in verdict
    assert "vm.workload.work" not in verdict  # a condition, not a choice
    assert "work = 300,000: a trade: wake-up latency mean \N{MINUS SIGN}" in verdict
    assert "CPU time burnt" in read.sections["worse"]
    assert "work=300,000" in read.sections["worse"]
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


def change(old: float, new: float, verdict: Verdict, metric: str = "busy_ns") -> Change:
    pct = 100 * (new / old - 1) if old else None
    ends = {"old_value": "a", "new_value": "b", "where": ""}
    spread = {"low": None, "high": None, "pct_low": None, "pct_high": None}
    rest = {"effect": None, "worse_pairs": 0, "q": None}
    return Change(
        metric=metric, unit="ns", pairs=1 if verdict == "single" else 5, old=old, new=new,
        difference=new - old, pct=pct, verdict=verdict, **ends, **spread, **rest,  # type: ignore[arg-type]
    )  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "verdict", "shown"),
    [
        (100, 90, "better", "better"),
        (100, 90, "single", "better"),
        (100, 110, "single", "worse"),
        (1000, 1001, "single", "same"),
        (0, 5, "single", "worse"),
        (100, 110, "unclear", "unclear"),
    ],
)
def test_a_single_pair_is_judged_by_its_sign(
    old: float, new: float, verdict: Verdict, shown: str
) -> None:
    assert Line(change(old, new, verdict)).verdict == shown


@pytest.mark.parametrize(
    ("changes", "headline"),
    [
        ([change(100, 90, "better")], "helps: CPU time burnt \N{MINUS SIGN}10.0 %"),
        ([change(100, 110, "worse"), change(9, 8, "better", "polling_ns")], "hurts: CPU time"),
        (
            [change(1, 1, "same"), change(1, 2, "unclear", "exits")],
            "unclear, more seeds are needed: VM exits +100.0 %",
        ),
        ([change(1, 1, "same"), change(1, 9, "worse", "handling_ns")], "no difference"),
        ([change(2, 1, "better"), change(1, 2, "worse", "exits")], "a trade: CPU time burnt"),
    ],
)
def test_headlines(changes: list[Change], headline: str) -> None:
    assert Step("a", "b", [Line(one) for one in changes]).headline.startswith(headline)


def test_what_got_worse_comes_worst_first(table: sv.ResultTable) -> None:
    found = worst([table.compare("kvm.halt_poll_ns")], None)
    assert {line.change.metric for _, line in found} == {"busy_ns"}
    percents = [line.change.pct or 0 for _, line in found]
    assert percents == sorted(percents, reverse=True)
    assert {line.change.where for _, line in found} == {"work=30,000", "work=300,000"}


def test_files_are_told_apart_by_what_differs(wake_back: sv.Scenario, tmp_path: Path) -> None:
    for poll in (0, 200_000, 50_000):
        wake_back.set("kvm.halt_poll_ns", poll).run().save(tmp_path / f"poll-{poll}.json")
    table = load_results(tmp_path)
    assert table.sweep == ("kvm.halt_poll_ns",)
    assert table.runs.collect()["kvm.halt_poll_ns"].to_list() == [0, 50_000, 200_000]
    wake_back.set("kvm.halt_poll_ns", 0).run().save(tmp_path / "again.json")
    assert "label" in load_results(tmp_path).sweep


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
