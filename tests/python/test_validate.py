from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest

import svmsim as sv
from conftest import Cli
from svmsim.validation import Item, judge, outcome, published_items, validate
from svmsim.validation.measure import MEASURES, Less
from svmsim.validation.published import CLASSES, published_rows

# Exact counts of short runs.
FAST = (
    "1.1.exits-off",
    "1.1.exits-on",
    "1.1.order-off",
    "1.1.order-on",
    "1.3",
    "C-11",
    "C-13",
    "C-19",
    "C-20.sender",
    "C-20.target",
    "C-20.self",
    "C-21",
    "C-22.pauses",
)

outcome.load_measures()


def test_every_item_has_a_measure_and_every_measure_an_item() -> None:
    assert set(MEASURES) == set(published_items())


def test_every_row_of_the_fact_sheet_has_items() -> None:
    rows = ["1.1", "1.2", "1.3", "1.4", *(f"C-{number:02d}" for number in range(1, 25))]
    assert sorted(published_rows()) == sorted(rows)
    for row in published_rows().values():
        assert row.source
        assert row.setup
        assert row.figures


def test_items_are_complete() -> None:
    for item in published_items().values():
        assert item.kind in CLASSES
        assert item.quantity
        if item.is_sign:
            assert item.high == 100
        else:
            assert item.low <= item.high
        if item.kind == "E" and item.low == item.high:
            assert item.published == item.low
        if item.kind != "D":
            assert item.published is not None
            assert item.low <= item.published <= item.high


def test_no_scenario_changes_a_cost() -> None:
    for id_, measure in MEASURES.items():
        for run in next(measure(seed=1) if outcome.takes_seed(measure) else measure()):
            scenario = run if isinstance(run, sv.Scenario) else run.scenario
            resolved = scenario.resolved["host"]
            profile = resolved["profile"]
            bare = sv.Scenario.from_dict(
                {"host": {"profile": profile}, "vm": [{"workload": {"kind": "cpuid"}}]}
            ).resolved["host"]["cost"]
            own = dict(resolved["cost"])
            if resolved["guest_hlt_depth"]:
                own["t_halt_wake"] = bare["t_halt_wake"]
            assert own == bare, id_


@pytest.fixture(scope="module")
def fast() -> outcome.Outcome:
    return validate(FAST)


def test_counts_hold_exactly(fast: outcome.Outcome) -> None:
    assert len(fast.judgements) > 20
    for judgement in fast.judgements:
        assert judgement.holds, judgement
        assert judgement.item.kind == "E" or judgement.item.id == "1.3.ratio"
    assert fast.holds


def test_json_has_what_programs_read(fast: outcome.Outcome) -> None:
    data = json.loads(fast.to_json())
    assert data["holds"] is True
    assert data["summary"]["E"]["hold"] == data["summary"]["E"]["of"]
    for item in data["items"]:
        assert set(item) >= {
            "id", "quantity", "published", "simulated", "low", "high", "class", "holds",
        }  # fmt: skip
        assert item["class"] in "ERDA"
        for name in ("simulated", "low", "high"):
            assert isinstance(item[name], int | float)
            assert math.isfinite(item[name])
        assert isinstance(item["holds"], bool)
        assert item["holds"] == (item["low"] <= item["simulated"] <= item["high"])


def test_a_broken_profile_fails_by_name() -> None:
    found = validate(["C-05"], overrides=["host.cost.u_avic_icr=9000"])
    verdicts = {judgement.item.id: judgement.holds for judgement in found.judgements}
    assert verdicts == {"C-05.ratio": False, "C-05.pv": True, "C-05.avic": False}
    assert not found.holds
    assert "does not fit" in found.to_markdown()
    for judgement in found.judgements:
        assert bool(judgement.reason) is not judgement.holds


def _sign(low: float = math.nan, high: float = 100.0) -> Item:
    row = published_rows()["C-08"]
    return Item("x.sign", row, "effect", "%", 1, "D", None, low, high, "", "")


def test_a_sign_has_to_hold_for_every_seed_and_exceed_the_spread() -> None:
    clear = [Less(100, 80 + seed) for seed in range(5)]
    found = judge.judge(_sign(), clear)
    assert found.holds
    assert found.simulated == pytest.approx(18)
    assert found.low == pytest.approx(2.5**0.5)
    one_wrong = [*clear[:4], Less(80, 81)]
    assert not judge.judge(_sign(), one_wrong).holds
    small = [Less(100, 99.9 - 12 * (seed == 4)) for seed in range(5)]
    assert not judge.judge(_sign(), small).holds
    assert not judge.judge(_sign(), [Less(7, 7)] * 5).holds
    assert judge.judge(_sign(-100, 0), [Less(7, 7)] * 5).holds
    assert judge.judge(_sign(0.6, 1.1), [0.7, 0.8]).holds
    assert not judge.judge(_sign(0.6, 1.1), [0.5, 0.9]).holds


def test_an_unknown_item_is_named() -> None:
    with pytest.raises(sv.UserError, match=r"no item C-0 \(did you mean C-"):
        validate(["C-0"])


def test_the_command_writes_its_table_its_page_and_json(cli: Cli, tmp_path: Path) -> None:
    done = cli(
        "validate",
        "--only",
        "C-21.exits,C-11",
        "--json",
        "items.json",
        "--out",
        "out",
        "-o",
        "v.md",
    )
    assert done.returncode == 0, done.stderr
    assert "C-21.exits" in done.stdout
    assert "E 10 of 10" in done.stdout
    data = json.loads((tmp_path / "items.json").read_text())
    assert [item["id"] for item in data["items"]][-1] == "C-21.exits"
    assert json.loads((tmp_path / "out/table.json").read_text()) == data
    page = (tmp_path / "v.md").read_text()
    assert page.startswith("# Published measurements\n")
    assert page == (tmp_path / "out/table.md").read_text()
    assert list((tmp_path / "out/runs").iterdir())


def test_the_command_fails_when_an_exact_count_does(cli: Cli) -> None:
    done = cli("validate", "--only", "C-19.eoi-on", "--set", "vm.pv=[]", "--set", "host.hz=1000")
    assert done.returncode in (0, 1)
    wrong = cli("validate", "--only", "C-99")
    assert wrong.returncode == 2
    assert "C-99" in wrong.stderr


def test_the_page_in_the_docs_shows_every_item_with_its_published_figure(root: Path) -> None:
    page = (root / "docs/validation.md").read_text()
    shown = dict(re.findall(r"^\| ([0-9C][\w.-]+) \| [^|]* \| ([^|]*) \|", page, re.MULTILINE))
    assert list(shown) == list(published_items())
    for item in published_items().values():
        text = "-" if item.published is None else f"{item.published:,.{item.digits}f}"
        assert shown[item.id] == text
