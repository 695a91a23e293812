"""`evict`: take a resource away from its holders, for a reason that they are told."""

from __future__ import annotations

from argparse import Namespace

from interlock.cli import exit_codes, formatting, json_output, target_store
from interlock.cli.output import Output
from interlock.model import Standing


def evict(options: Namespace, output: Output) -> int:
    """Evict the holders, or the one claim that was named; exit with 1 when that met nobody."""
    with target_store.open_existing(options.url) as client:
        removed = client.evict(
            options.name,
            reason=options.reason,
            id=options.id,
            foreign=options.foreign,
            no_expiry=options.no_expiry,
        )
    if output.json:
        evicted = [json_output.of_standing(standing) for standing in removed]
        output.document({"resource": options.name, "reason": options.reason, "evicted": evicted})
        return 0 if removed else exit_codes.NOBODY
    name = formatting.printable(options.name)
    for standing in removed:
        output.line(f"{name}: {_fate(standing)}")
    if not removed:
        whom = (
            "nobody holds it"
            if options.id is None
            else f"no claim has the id {formatting.printable(options.id)}"
        )
        output.say(f"{name}: {whom}; see interlock inspect {name}")
        return exit_codes.NOBODY
    return 0


def _fate(standing: Standing) -> str:
    token = f", token {standing.token}" if standing.token else ""
    if standing.lingering:
        return f"ended the min_hold of {formatting.who(standing)}{token}"
    return f"evicted {formatting.who(standing)}, {formatting.state(standing)}{token}"
