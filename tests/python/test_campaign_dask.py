"""The Dask backend, with a real scheduler and two workers, which are processes of their own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import svmsim as sv
from conftest import SMALL, Cli
from svmsim.campaign import cluster, execute
from svmsim.campaign.identity import build
from test_campaign_disasters import RUNS, SLOW, _wait_for, undisturbed
from test_campaign_run import records, tables

__all__ = ["undisturbed"]


class Cluster:
    """A scheduler and its workers; each is one process without a nanny, so that a kill is final."""

    def __init__(self, directory: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.address = f"tcp://127.0.0.1:{port}"
        self._directory = directory
        self._environment = {**os.environ, "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "false"}
        options = ["--host", "127.0.0.1", "--port", str(port), "--no-dashboard", "--no-show"]
        self.scheduler = self._start("distributed.cli.dask_scheduler", *options)
        self.workers = [self.add_worker() for _ in range(2)]

    def _start(self, module: str, *arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            cwd=self._directory,
            env=self._environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def add_worker(self) -> subprocess.Popen[bytes]:
        """Start a worker of one thread."""
        options = ["--no-nanny", "--nthreads", "1", "--no-dashboard"]
        return self._start("distributed.cli.dask_worker", self.address, *options)

    def close(self) -> None:
        """End all processes."""
        for process in (*self.workers, self.scheduler):
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def dask_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A scheduler with two workers."""
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def slow_dir(tmp_path: Path) -> Path:
    """A directory with slow.toml."""
    (tmp_path / "small.toml").write_text(SMALL)
    (tmp_path / "slow.toml").write_text(SLOW)
    return tmp_path


@pytest.mark.parametrize("store", ["return", "shared"])
def test_same_bytes_with_a_worker_killed_half_way(
    slow_dir: Path, undisturbed: dict[str, bytes], dask_cluster: Cluster, store: str
) -> None:
    arguments = ["--backend", "dask", "--scheduler", dask_cluster.address, "--store", store]
    driver = subprocess.Popen(
        [sys.executable, "-m", "svmsim", "sweep", "slow.toml", "--out", "out", *arguments],
        cwd=slow_dir,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    _wait_for(lambda: len(records(slow_dir / "out")) >= RUNS // 4, "no run finished")
    victim = dask_cluster.workers.pop(0)
    victim.send_signal(signal.SIGKILL)
    victim.wait()
    dask_cluster.workers.append(dask_cluster.add_worker())
    _, errors = driver.communicate(timeout=60)
    assert driver.returncode == 0, errors
    counts = Counter(records(slow_dir / "out"))
    assert len(counts) == RUNS
    assert set(counts.values()) == {1}
    assert tables(slow_dir / "out") == undisturbed
    owners = {path.name.split("-")[0] for path in (slow_dir / "out" / "journal").iterdir()}
    assert owners == ({"driver"} if store == "return" else {"svmsim"})


def test_a_cluster_made_here(tmp_path: Path, small_file: Path, cli: Cli) -> None:
    (tmp_path / "c.toml").write_text(f'scenario = "{small_file.name}"\nseeds = 5\n')
    assert cli("sweep", "c.toml", "--out", "local").returncode == 0
    done = cli("sweep", "c.toml", "--out", "dask", "--backend", "dask", "-j", "1")
    assert done.returncode == 0, done.stderr
    assert tables(tmp_path / "dask") == tables(tmp_path / "local")


def test_no_scheduler(
    small: sv.Scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    monkeypatch.setattr(cluster, "_CONNECT_S", 0.3)
    with pytest.raises(sv.UserError, match=r"127\.0\.0\.1:1: no Dask scheduler answers"):
        sv.Campaign(small).run(tmp_path, "dask", scheduler="tcp://127.0.0.1:1", progress=False)
    done = cli("sweep", "c.toml", "--out", "out", "--scheduler", "tcp://127.0.0.1:1")
    assert done.returncode == 2
    assert "did you mean --backend dask" in done.stderr


def test_a_worker_of_another_build_is_refused() -> None:
    work = execute.Work(("{}",), ".", "0123456789abcdef", 0.0, "")
    with pytest.raises(sv.UserError, match=f"has svmsim build {build()}, .* 0123456789abcdef"):
        cluster.simulate_chunk(work, "", "key", ())
