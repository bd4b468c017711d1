from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import svmsim as sv
from conftest import Cli
from svmsim import plot
from svmsim._pictures import pictures

POLLS = (0, 20_000, 200_000)
WORK = (30_000, 300_000)


@pytest.fixture(scope="module")
def results(wake_back: sv.Scenario) -> list[sv.Result]:
    return [
        wake_back.with_(**{"kvm.idle_hlt": on, "kvm.halt_poll_ns": poll, "vm.workload.work": work})
        .with_(run={"seed": 1})
        .run(events=True)
        for on, poll, work in itertools.product((False, True), POLLS, WORK)
    ]


LONG_NAMES = [f"a name of some length, and more of it, {i}" * 3 for i in range(6)]
BY = ["kvm.idle_hlt", "kvm.halt_poll_ns"]
if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.text import Text

Draw = Callable[[list[sv.Result]], Any]
DRAWN: dict[str, Draw] = {
    "exit_mix": lambda r: plot.exit_mix(r, BY),
    "exit_mix_one": lambda r: plot.exit_mix(r[0]),
    "before_after": lambda r: plot.before_after(r[:6], r[6:], labels=("off", "on")),
    "handling_times": lambda r: plot.handling_times(r, "kvm.halt_poll_ns"),
    "halt_story": lambda r: plot.halt_story(r, BY),
    "halt_story_long": lambda r: plot.halt_story(dict(zip(LONG_NAMES, r, strict=False))),
    "halt_poll_growth": lambda r: plot.halt_poll_growth(r, BY),
    "wakeup_cdf": lambda r: plot.wakeup_cdf(r, "kvm.halt_poll_ns"),
    "frontier": lambda r: plot.frontier(r, BY),
    "ipi_cost": lambda r: plot.ipi_cost(r, fanout="vm.workload.work", by="kvm.halt_poll_ns"),
    "timeline": lambda r: plot.timeline(r[3]),
    "heat_map": lambda r: plot.heat_map(
        r, x="kvm.halt_poll_ns", y="vm.workload.work", value="busy_ns"
    ),
}  # fmt: skip


def root_of(drawn: Any) -> Figure:
    root: Figure = getattr(drawn, "figure", drawn).figure
    return root


def texts_of(figure: Figure) -> list[Text]:
    found: list[Text] = []
    for axes in figure.axes:
        found += [*axes.texts, axes.title, axes._left_title, axes.xaxis.label, axes.yaxis.label]  # type: ignore[attr-defined]
        for axis, limits in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
            low, high = sorted(limits)
            for tick in axis.get_major_ticks():
                if low <= tick.get_loc() <= high:
                    found.append(tick.label1)
        if (legend := axes.get_legend()) is not None:
            found += legend.get_texts()
    for legend in figure.legends:
        found += legend.get_texts()
    if figure._suptitle is not None:  # type: ignore[attr-defined]
        found.append(figure._suptitle)  # type: ignore[attr-defined]
    return [text for text in found if text.get_text().strip() and text.get_visible()]


@pytest.mark.parametrize("name", DRAWN)
def test_every_text_is_legible(results: list[sv.Result], name: str) -> None:
    """At column width: at least 5 points, within the picture, none over another."""
    figure = root_of(DRAWN[name](results))
    assert figure.get_figwidth() in (plot.COLUMN_INCHES, plot.PAGE_INCHES)
    figure.canvas.draw()
    page = figure.bbox
    boxes = []
    texts = texts_of(figure)
    assert len(texts) > 5
    for text in texts:
        assert float(text.get_fontsize()) >= 5
        box = text.get_window_extent()
        assert page.x0 - 1 <= box.x0 <= box.x1 <= page.x1 + 1, text.get_text()
        assert page.y0 - 1 <= box.y0 <= box.y1 <= page.y1 + 1, text.get_text()
        boxes.append((text.get_text(), box.shrunk(0.98, 0.9)))
    for index, (one, box) in enumerate(boxes):
        for other, other_box in boxes[:index]:
            assert not box.overlaps(other_box), (one, other)


@pytest.mark.parametrize("name", ["heat_map"])
def test_the_same_picture_gives_the_same_bytes(
    results: list[sv.Result], tmp_path: Path, name: str
) -> None:
    written = []
    for place in ("a", "b"):
        files = plot.save(root_of(DRAWN[name](results)), tmp_path / place / name, plot.FORMATS)
        assert [file.suffix for file in files] == [".png", ".svg", ".pdf"]
        written.append([file.read_bytes() for file in files])
    assert written[0] == written[1]


def test_axes_carry_units(results: list[sv.Result]) -> None:
    axes = plot.frontier(results, BY)
    assert axes.get_ylabel() == "wake-up latency p99 (µs)"
    assert axes.get_xlabel() == "pCPU time not idle (%)"
    labels = [panel.get_xlabel() for panel in plot.exit_mix(results, BY).axes]
    assert labels[0] == "VM exits (count)"
    assert labels[1].startswith("host CPU time: handling, polling (")


def test_exit_mix_is_what_the_results_say(results: list[sv.Result]) -> None:
    frame = plot.df_exit_mix(results[3])
    for name, count, cpu_ns, time_ns in frame.select(pl.exclude("configuration")).iter_rows():
        exit_ = results[3].exit_totals[name]
        assert count == exit_["count"]
        # Each vCPU's times are rounded by themselves.
        assert time_ns == pytest.approx(exit_["time_ns"], abs=2)
        assert cpu_ns == pytest.approx(exit_["handling_ns"] + exit_["polling_ns"], abs=4)
    assert len(frame) == len(results[3].exit_totals)


def test_before_after_changes(results: list[sv.Result]) -> None:
    frame = plot.df_before_after(results[0], results[6])
    changes = {row["exit"]: row for row in frame.to_dicts()}
    assert changes["hlt"]["change_pct"] == -100
    assert changes["idle-halt"]["change_pct"] is None  # there was none
    assert changes["idle-halt"]["change"] == 40
    assert abs(frame["change"][0]) == frame["change"].abs().max()


def test_handling_times_are_quantiles_of_the_events(results: list[sv.Result]) -> None:
    frame = plot.df_handling_times(results[0])
    row = frame.filter(exit="cpuid").to_dicts()[0]
    exit_ = results[0].exit_totals["cpuid"]
    assert row["count"] == exit_["count"]
    assert exit_["min_ns"] - 1 <= row["p5_ns"] <= row["p50_ns"] <= row["max_ns"]
    assert row["max_ns"] == pytest.approx(exit_["max_ns"], abs=1)


def test_halts_are_all_accounted_for(results: list[sv.Result]) -> None:
    frame = plot.df_halts(results, ["kvm.idle_hlt", "kvm.halt_poll_ns", "vm.workload.work"])
    names = ("at_once", "poll_success", "poll_failure", "blocked")
    assert (frame.select(pl.sum_horizontal(names)).to_series() == 40).all()
    none, some = frame["poll_success"][0], frame["poll_success"][4]
    assert none == 0 < some
    assert frame["poll_wasted_ns"][0] == 0 < frame["poll_wasted_ns"][4]


def test_wakeup_stages_add_up_to_the_latency(results: list[sv.Result]) -> None:
    frame = plot.df_wakeup_stages(results[0])
    stages = frame.select("woken_ns", "awake_ns", "running_ns", "entry_ns")
    for row in stages.iter_rows():
        assert list(row) == sorted(row)
    (mean,) = results[0].latency.filter(kind="wakeup")["mean_ns"]
    assert sum(frame["entry_ns"]) / len(frame) == pytest.approx(mean, rel=0.05)


def test_frontier_leaves_out_what_is_dominated() -> None:
    from svmsim.plot._latency import _dominates

    cheap = {"cpu": 1.0, "latency": 5.0}
    assert _dominates(cheap, {"cpu": 2.0, "latency": 5.0})
    assert not _dominates(cheap, {"cpu": 2.0, "latency": 4.0})
    assert not _dominates(cheap, dict(cheap))


def test_heat_map_orders_by_value(results: list[sv.Result]) -> None:
    frame = plot.df_heat_map(
        results, x="kvm.halt_poll_ns", y="vm.workload.work", value="exits.count"
    )
    assert frame["x"].unique(maintain_order=True).to_list() == ["0", "20,000", "200,000"]
    assert frame["runs"].to_list() == [2] * 6


def test_pictures_of_events_need_events(results: list[sv.Result]) -> None:
    table = sv.ResultTable.of(results)
    plain = sv.Result.from_json(results[0].to_json())
    for given in (table, plain):
        for draw in (plot.handling_times, plot.wakeup_cdf, plot.halt_poll_growth):
            with pytest.raises(sv.UserError, match="events"):
                draw(given)


def test_a_table_draws_as_its_results_do(results: list[sv.Result]) -> None:
    table = sv.ResultTable.of(results)
    for by in (BY, "vm.workload.work"):
        for df in (plot.df_exit_mix, plot.df_halts, plot.df_exit_counts):
            assert df(table, by).equals(df(results, by))
    with pytest.raises(sv.UserError, match="no such parameter"):
        plot.df_halts(table, "kvm.nothing")


def test_a_table_gives_its_pictures_by_itself(results: list[sv.Result]) -> None:
    names = [picture.name for picture in pictures(sv.ResultTable.of(results))]
    assert names[:4] == ["exit-mix", "change-idle_hlt", "change-work", "halt-story"]
    assert {"frontier", "heat-busy"} <= set(names)
    assert [p.name for p in pictures(sv.ResultTable.of(results[:1]))] == ["exit-mix", "halt-story"]


def test_plot_command(cli: Cli, results: list[sv.Result], tmp_path: Path) -> None:
    for index in (0, 11, 2):
        results[index].save(tmp_path / "in" / f"run-{index}.json")
    done = cli("plot", "in", "--format", "svg")
    assert done.returncode == 0, done.stderr
    written = [line.removeprefix("wrote ") for line in done.stdout.splitlines()]
    assert "in/plots/exit-mix.svg" in written
    assert all((tmp_path / file).stat().st_size > 1000 for file in written)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["nowhere"], "nowhere: cannot be read"),
        (["."], "holds neither a campaign"),
        ([".", "--format", "pgn"], "holds neither"),
        (["one.json", "--format", "pgn"], "did you mean png"),
    ],
)
def test_plot_command_complains(
    cli: Cli, results: list[sv.Result], tmp_path: Path, arguments: list[str], complaint: str
) -> None:
    if arguments[0] == "one.json":
        results[0].save(tmp_path / "one.json")
    done = cli("plot", *arguments)
    assert done.returncode == 2
    assert complaint in done.stderr.lower() or complaint in done.stderr
