from __future__ import annotations

import io
from pathlib import Path

import pytest
from vcd.reader import TokenKind, tokenize

import svmsim as sv
from conftest import Cli

Changes = dict[str, list[tuple[int, int]]]
"""By signal: (time in ps, new value)."""


def read(file: Path) -> tuple[Changes, int]:
    """The changes of every signal and the last time."""
    names: dict[str, str] = {}
    scopes: list[str] = []
    changes: Changes = {}
    now = 0
    for token in tokenize(io.BytesIO(file.read_bytes())):
        if token.kind is TokenKind.TIMESCALE:
            assert int(token.timescale.magnitude) == 1
            assert token.timescale.unit.name == "picosecond"
        elif token.kind is TokenKind.SCOPE:
            scopes.append(token.scope.ident)
        elif token.kind is TokenKind.UPSCOPE:
            scopes.pop()
        elif token.kind is TokenKind.VAR:
            names[token.var.id_code] = ".".join([*scopes[2:], token.var.reference])
        elif token.kind is TokenKind.CHANGE_TIME:
            assert token.time_change >= now
            now = token.time_change
        elif token.kind in (TokenKind.CHANGE_SCALAR, TokenKind.CHANGE_VECTOR):
            scalar = token.kind is TokenKind.CHANGE_SCALAR
            change = token.scalar_change if scalar else token.vector_change
            changes.setdefault(names[change.id_code], []).append((now, int(change.value)))
    return changes, now


def times(changes: list[tuple[int, int]], end: int) -> dict[int, int]:
    """How long a signal had each value, in ps."""
    result: dict[int, int] = {}
    for (begin, value), (until, _) in zip(changes, [*changes[1:], (end, 0)], strict=True):
        result[value] = result.get(value, 0) + until - begin
    return result


@pytest.fixture(scope="module")
def wave(wake_back: sv.Scenario, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("vcd") / "run.vcd"
    wake_back.run(vcd=file)
    assert [f.name for f in file.parent.iterdir()] == ["run.vcd"]  # nothing left beside it
    return file


def test_every_cpu_has_its_signals(wave: Path) -> None:
    changes, _ = read(wave)
    cpus = {f"cpu{i}.{name}" for i in (0, 1) for name in ("use", "tid")}
    names = ("mode", "halted", "if", "irr_top", "isr_top", "is_running", "poll")
    assert changes.keys() == cpus | {f"vm0_vcpu{i}.{name}" for i in (0, 1) for name in names}


def test_use_adds_up_to_the_statistics(wave: Path, wake_back: sv.Scenario) -> None:
    changes, end = read(wave)
    result = wake_back.run()  # with run-ahead: the waveform changes nothing
    assert end / 1000 == pytest.approx(result.sim_time_ns, abs=1000)
    for row in result.pcpus.iter_rows(named=True):
        spent = times(changes[f"cpu{row['pcpu']}.use"], end)
        for value, name in enumerate(("guest_ns", "host_ns", "poll_ns", "idle_ns")):
            assert spent[value] / 1000 == pytest.approx(row[name], abs=1000), name


def test_the_vector_goes_through_irr_and_isr(wave: Path) -> None:
    changes, _ = read(wave)
    for vcpu in (0, 1):
        for name in ("irr_top", "isr_top"):
            values = [value for _, value in changes[f"vm0_vcpu{vcpu}.{name}"]]
            assert set(values) == {0, 0x41}
            assert values.count(0x41) == 20, name


def test_polling_and_mode_agree(wave: Path, wake_back: sv.Scenario) -> None:
    changes, end = read(wave)
    stats = wake_back.run().vcpus
    for vcpu in (0, 1):
        polls = changes[f"vm0_vcpu{vcpu}.poll"]
        assert [value for _, value in polls].count(1) == stats["halt_attempted_poll"][vcpu]
        halted = times(changes[f"vm0_vcpu{vcpu}.halted"], end)
        assert halted[1] >= times(polls, end)[1]
        mode = changes[f"vm0_vcpu{vcpu}.mode"]
        entries = [value for _, value in mode].count(1)
        assert entries > stats["exits"][vcpu] / 2


def value_at(changes: list[tuple[int, int]], time: int) -> int:
    return [value for changed, value in changes if changed <= time][-1]


def test_a_vcpu_enters_the_guest_only_while_it_runs(wave: Path, wake_back: sv.Scenario) -> None:
    changes, _ = read(wave)
    waits = wake_back.run().vcpus["halt_wait_hist"].to_list()
    for vcpu in (0, 1):
        running = changes[f"vm0_vcpu{vcpu}.is_running"]
        for time, mode in changes[f"vm0_vcpu{vcpu}.mode"]:
            assert mode == 0 or value_at(running, time) == 1
        # It goes away whenever it blocks, and perhaps at the end.
        assert [value for _, value in running[1:]].count(0) - sum(waits[vcpu]) in (0, 1)


def test_the_same_run_gives_the_same_bytes(cli: Cli, small_file: Path, tmp_path: Path) -> None:
    for name in ("a.vcd", "b.vcd"):
        done = cli("run", small_file, "--vcd", name)
        assert done.returncode == 0, done.stderr
    text = (tmp_path / "a.vcd").read_bytes()
    assert text == (tmp_path / "b.vcd").read_bytes()
    assert b"$date" not in text


def test_a_run_that_fails_leaves_no_waveform(wake_back: sv.Scenario, tmp_path: Path) -> None:
    def stop(_share: float) -> None:
        raise KeyboardInterrupt

    long = wake_back.set("vm.workload.rounds", 1_000_000)
    with pytest.raises(KeyboardInterrupt):
        long.run(vcd=tmp_path / "x.vcd", progress=stop)
    assert list(tmp_path.iterdir()) == []
