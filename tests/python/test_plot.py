from __future__ import annotations

from pathlib import Path

import pytest

import svmsim as sv
from svmsim import plot


@pytest.fixture(scope="module")
def results() -> list[sv.Result]:
    base = sv.Scenario.from_dict(
        {
            "host": {"hz": 0},
            "kvm": {"avic": False},
            "vm": [{"pin": [0], "workload": {"kind": "idle_hlt_test", "iterations": 50}}],
        }
    )
    return [base.set("kvm.idle_hlt", on).run() for on in (False, True)]


def test_frame_beneath_the_plot(results: list[sv.Result]) -> None:
    frame = plot.df_exit_counts(results, by="kvm.idle_hlt")
    assert frame.columns == ["configuration", "exit", "count"]
    counts = {(label, name): count for label, name, count in frame.iter_rows()}
    assert counts["idle_hlt = false", "hlt"] == 50
    assert counts["idle_hlt = true", "hlt"] == 0  # present, though no such exit occurred
    assert counts["idle_hlt = true", "msr"] == 153


def test_results_of_one_configuration_are_averaged(results: list[sv.Result]) -> None:
    frame = plot.df_exit_counts([*results, results[0]], by="run.seed")
    counts = {name: count for _, name, count in frame.iter_rows()}
    assert counts["hlt"] == pytest.approx(100 / 3)


def test_labels_of_a_mapping_and_by_a_vm_parameter(results: list[sv.Result]) -> None:
    labels = plot.df_exit_counts({"a": results[0], "b": results[1]})["configuration"]
    assert labels.unique(maintain_order=True).to_list() == ["a", "b"]
    for path in ("vm.apic", "vm.vm0.apic"):
        frame = plot.df_exit_counts(results, by=path)
        assert frame["configuration"].unique().to_list() == ["apic = x2apic"]
    with pytest.raises(sv.UserError, match=r"kvm\.nothing"):
        plot.df_exit_counts(results, by="kvm.nothing")


def test_bars_show_the_counts(results: list[sv.Result]) -> None:
    axes = plot.exit_counts(results, by="kvm.idle_hlt")
    heights = [[bar.get_height() for bar in group] for group in axes.containers]
    assert heights == [[153, 50, 50], [153, 50, 0]]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["msr", "vintr", "hlt"]
    assert axes.get_ylabel() == "VM exits (count)"


@pytest.mark.parametrize("configurations", [2, 6])
def test_no_label_overlaps_another_or_leaves_the_picture(
    results: list[sv.Result], configurations: int
) -> None:
    many = {f"configuration {i}": results[i % 2] for i in range(configurations)}
    figure = plot.exit_counts(many).figure
    figure.canvas.draw()
    page = figure.bbox
    boxes = []
    (axes,) = figure.axes
    for text in [*axes.texts, *axes.get_xticklabels(), axes.title, axes.xaxis.label]:
        box = text.get_window_extent()
        assert page.x0 <= box.x0 <= box.x1 <= page.x1, text.get_text()
        assert page.y0 <= box.y0 <= box.y1 <= page.y1, text.get_text()
        boxes.append((text.get_text(), box))
    for index, (name, box) in enumerate(boxes):
        for other, other_box in boxes[:index]:
            assert not box.overlaps(other_box), (name, other)


def test_the_same_picture_gives_the_same_bytes(results: list[sv.Result], tmp_path: Path) -> None:
    written = []
    for name in ("a", "b"):
        files = plot.save(
            plot.exit_counts(results, by="kvm.idle_hlt").figure, tmp_path / name / "p"
        )
        assert [file.suffix for file in files] == [".png", ".svg"]
        written.append([file.read_bytes() for file in files])
    assert written[0] == written[1]


def test_stacked_times_stack() -> None:
    times = {"off": {"msr": 2.0, "hlt": 1.0}, "on": {"msr": 2.0}}
    axes = plot.stacked_times(times, ylabel="time (ns)", title="t")
    tops = [[bar.get_y() + bar.get_height() for bar in group] for group in axes.containers]
    assert tops == [[2, 2], [3, 2]]
    assert [text.get_text() for text in axes.texts if text.get_fontweight() == "bold"] == ["3", "2"]


def test_one_result_or_none(results: list[sv.Result]) -> None:
    one = plot.df_exit_counts(results[0])
    assert one.equals(plot.df_exit_counts([results[0]]))
    assert plot.exit_counts(results[0], by="kvm.idle_hlt").containers
    nothing: list[list[sv.Result] | dict[str, sv.Result]] = [[], {}]
    for none in nothing:
        with pytest.raises(ValueError, match="no results"):
            plot.exit_counts(none)
