"""Ages, states and foreign text, as an operator reads them."""

from __future__ import annotations

import time

from interlock._support import wording
from interlock._support.printable import JOINER as JOINER
from interlock._support.wording import printable as printable
from interlock.cli import table
from interlock.model import EVERYTHING, NEVER, Queue, Standing

FOREIGN = "a key of another program"


def age(seconds: float) -> str:
    """`41 s`, `3 min 20 s`, `2 h 5 min`, `3 d 4 h`."""
    whole = max(0, int(seconds))
    if whole < 1:
        return "<1 s"
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def who(standing: Standing) -> str:
    """The caller that made the claim.

    Nothing is known of another program's key, and its value is not shown.
    """
    return FOREIGN if standing.foreign else printable(str(standing.caller))


def holder(standing: Standing) -> str:
    """The text of the column HOLDER; a claim that only lingers has no holder any more."""
    return f"nobody, released by {who(standing)}" if standing.lingering else who(standing)


def holder_shortened(standing: Standing) -> tuple[str, ...]:
    """The same, and shorter forms of it: the pid is what an operator needs, so it goes last."""
    if standing.foreign:
        return holder(standing), "another program"
    caller = standing.caller
    host, thread, site = printable(caller.host or "unknown"), printable(caller.thread), printable(caller.site)
    pid = f" pid {caller.pid}" if caller.pid else ""
    place = f" ({site})" if site else ""
    short = f" ({site.rpartition('/')[2]})" if site else ""
    hosts = [host, table.cut(host, 16), table.cut(host, 8)]
    before = "nobody, after " if standing.lingering else ""
    forms = [
        holder(standing),
        *([f"{before}{host}{pid} {thread}{short}"] if thread != "MainThread" else []),
        f"{before}{host}{pid}{place}",
        f"{before}{host}{pid}{short}",
        *(f"{before}{name}{pid}" for name in hosts),
        *(["nobody"] if standing.lingering else [pid.strip()] if pid else []),
    ]
    return tuple(dict.fromkeys(forms))


def kind(queue: Queue) -> str:
    """The kind of synchronizer that contenders use: `lock`, `election`, `read`, `write`, `2 of 3`; `idle`
    if there are none.
    """
    if not queue.standings:
        return "idle"
    if queue.capacity == 1:
        return printable(queue.standings[0].caller.kind) or "lock"
    if queue.capacity == EVERYTHING:
        return "write" if queue.standings[0].permits == EVERYTHING else "read"
    return f"{sum(holder.permits for holder in queue.holders)} of {queue.capacity}"


def state(standing: Standing) -> str:
    """`held 41 s`, `waiting 3 s`; `free in 12 s` for a claim that only lingers; a foreign key does not say
    since when.
    """
    if standing.lingering:
        return f"free in {age(standing.lapses_in)}"
    if standing.foreign:
        return "held"
    return f"{'held' if standing.admitted else 'waiting'} {age(standing.age)}"


def state_shortened(standing: Standing) -> tuple[str, ...]:
    """The same, and without its smaller unit: `held 3 min`."""
    whole = state(standing)
    words = whole.split()
    return (whole, " ".join(words[:-2])) if len(words) >= 5 else (whole,)


def held(standing: Standing) -> str:
    """One sentence that names the holder and says since when it holds."""
    if standing.lingering:
        return wording.held(standing)
    if standing.foreign:
        return f"held by {FOREIGN}, which {lapse(standing)}"
    return (
        f"held for {age(standing.age)} (since {since(standing.age)}) by {who(standing)}, token "
        f"{standing.token}"
    )


def since(seconds: float) -> str:
    """The time of day, on this machine's clock, so many seconds ago; with the date if that was on another
    day.
    """
    now = time.time()
    then = time.localtime(now - seconds)
    today = then[:3] == time.localtime(now)[:3]
    return time.strftime("%H:%M:%S" if today else "%Y-%m-%d %H:%M:%S", then)


def lapse(standing: Standing) -> str:
    """When the claim ends by itself, if its holder does not renew it."""
    if standing.lapses_in == NEVER:
        return "never lapses by itself"
    return f"lapses in {age(standing.lapses_in)}"


def token_shortened(standing: Standing) -> tuple[str, ...]:
    """The token, and its last digits: those differ between neighbours."""
    whole = str(standing.token) if standing.token else ""
    return (whole, f"…{whole[-7:]}") if len(whole) > 8 else (whole,)


def permits(standing: Standing, capacity: int) -> str:
    """The size of a claim, where a reader cannot infer it: `2 permits`, `read`, `write`."""
    if capacity == 1:
        return ""
    if capacity == EVERYTHING:
        return "write" if standing.permits == EVERYTHING else "read"
    return "1 permit" if standing.permits == 1 else f"{standing.permits} permits"
