"""`evict`: take a resource away from who holds it, for a reason."""

from __future__ import annotations

from argparse import Namespace

from interlock.cli import codes, document, opening, words
from interlock.cli.outlet import Outlet
from interlock.model import Standing


def evict(options: Namespace, outlet: Outlet) -> int:
    """Evict the holders, or the one claim that was named; exit with 1 when that met nobody."""
    with opening.opened(options.url) as client:
        met = client.evict(
            options.name,
            reason=options.reason,
            id=options.id,
            foreign=options.foreign,
            no_expiry=options.no_expiry,
        )
    if outlet.json:
        evicted = [document.of_standing(standing) for standing in met]
        outlet.document({"resource": options.name, "reason": options.reason, "evicted": evicted})
        return 0 if met else codes.NOBODY
    name = words.printable(options.name)
    for standing in met:
        outlet.line(f"{name}: {_fate(standing)}")
    if not met:
        whom = (
            "nobody holds it" if options.id is None else f"no claim has the id {words.printable(options.id)}"
        )
        outlet.say(f"{name}: {whom}; see interlock inspect {name}")
        return codes.NOBODY
    return 0


def _fate(standing: Standing) -> str:
    token = f", token {standing.token}" if standing.token else ""
    if standing.lingering:
        return f"ended the min_hold of {words.who(standing)}{token}"
    return f"evicted {words.who(standing)}, {words.state(standing)}{token}"
