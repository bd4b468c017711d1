from __future__ import annotations

import json

import pytest

import svmsim as sv
from conftest import Cli


def test_topics(cli: Cli) -> None:
    done = cli("describe", "--json", "-")
    topics = json.loads(done.stdout)
    assert set(topics) >= {
        "parameters",
        "statistics",
        "exit_codes",
        "knobs",
        "profiles",
        "programs",
        "events",
    }
    assert all(topics.values())
    for name, records in topics.items():
        assert all(record.get("name") or record.get("path") for record in records), name
    text = cli("describe").stdout
    assert all(name in text for name in topics)


@pytest.mark.parametrize("name", ["idle_hlt", "kvm.idle_hlt", "exit_codes", "idle_hlt_test"])
def test_by_topic_or_name(cli: Cli, name: str) -> None:
    done = cli("describe", name)
    assert done.returncode == 0, done.stderr
    assert name.rpartition(".")[2] in done.stdout


def test_every_described_parameter_is_in_a_resolved_scenario(cli: Cli, small: sv.Scenario) -> None:
    parameters = json.loads(cli("describe", "parameters", "--json", "-").stdout)["parameters"]
    names = {record["path"] for record in parameters}
    assert {"kvm.idle_hlt", "host.kernel", "run.seed"} <= names
    for name in names:
        if name.startswith(("kvm.", "run.")):
            section, _, key = name.partition(".")
            if key != "duration":  # absent = until the workload ends
                assert key in small.resolved[section], name


def test_schema_is_json_schema(cli: Cli) -> None:
    schema = json.loads(cli("describe", "--schema").stdout)
    assert schema["type"] == "object"
    assert "idle_hlt" in schema["properties"]["kvm"]["properties"]
