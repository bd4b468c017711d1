"""Row 1.2: who polls, host or guest. The set-ups are those of the study of halt polling."""

from __future__ import annotations

from functools import cache

from svmsim.studies import halt_polling
from svmsim.studies._halt_polling_rows import TRANSACTIONS, round_us
from svmsim.validation.measure import Less, Plan, Run, measures


@cache
def _published() -> dict[str, Run]:
    found = {}
    for run in halt_polling.published_runs():
        many = "_100-" in run.name  # whose few rounds differ more
        scenario = run.scenario.set("run.duration", "200ms") if many else run.scenario
        found[run.name] = Run(scenario, weight=5e4 * run.weight)
    return found


def _ping_pong(name: str) -> Run:
    return _published()[f"ping-pong-{name}"]


@measures({"1.2.ratio": ()})
def polling_overhead() -> Plan:
    """What virtualization adds to a round, polling in the guest by polling in the host."""
    names = ("host", "guest-poll", "host-poll")
    results = yield [_ping_pong(name) for name in names]
    host, guest_poll, host_poll = (round_us(result, "client") for result in results)
    return (guest_poll - host) / (host_poll - host)


@measures(
    {
        "1.2.host": ("guest-poll", "host"),
        "1.2.guest-poll": ("host-poll", "guest-poll"),
        "1.2.host-poll": ("no-poll", "host-poll"),
    }
)
def rounds(slow: str, fast: str) -> Plan:
    """Time of a round of the ping-pong in two set-ups."""
    first, second = yield [_ping_pong(name) for name in (slow, fast)]
    return Less(round_us(first, "client"), round_us(second, "client"))


@measures(
    {
        "1.2.delete-100-guest": ("delete_100", "base", "guest-spin"),
        "1.2.insert-100-guest": ("insert_100", "base", "guest-spin"),
        "1.2.delete-1-guest": ("delete_1", "base", "guest-spin"),
        "1.2.update-1-guest": ("update_1", "base", "guest-spin"),
        "1.2.delete-100-host": ("delete_100", "host-poll", "base"),
        "1.2.insert-100-host": ("insert_100", "host-poll", "base"),
        "1.2.delete-1-host": ("delete_1", "base", "host-poll"),
        "1.2.update-1-host": ("update_1", "base", "host-poll"),
    }
)
def transactions(tasks: str, slow: str, fast: str) -> Plan:
    """Time of a transaction in two set-ups."""
    first, second = yield [_published()[f"{tasks}-{setting}"] for setting in (slow, fast)]
    return Less(*(round_us(result, TRANSACTIONS[tasks]) for result in (first, second)))
