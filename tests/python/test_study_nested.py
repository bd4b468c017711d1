from __future__ import annotations

import pytest

from svmsim.studies import nested


@pytest.mark.parametrize("style", nested.STYLES)
@pytest.mark.parametrize("mode", nested.MODES)
def test_simulated_counts_are_the_derived_ones(style: str, mode: str) -> None:
    cell = nested.Cell(style, mode, False, "idle_hlt_test")
    planned = nested.runs()
    counts = [
        nested.exits_by_level(
            planned[f"{cell.name}-{nested.MORE}"].set("vm.workload.iterations", n).run()
        )
        for n in (50, 150)
    ]
    per_iteration = {key: (n - counts[0].get(key, 0)) / 100 for key, n in counts[1].items()}
    rule = {
        (level, kind): float(n)
        for level, kinds in nested.derived(style, mode).items()
        for kind, n in kinds.items()
    }
    assert {key: n for key, n in per_iteration.items() if n} == rule


def test_every_cell_is_planned() -> None:
    planned = nested.runs()
    names = {cell.name for cell in nested.cells()}
    assert len(names) == 24
    assert {name.rpartition("-")[0] for name in planned} == names
