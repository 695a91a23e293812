"""Examines the members of an etcd cluster that the URL names: versions, alarms, space, and how many vote."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from interlock._support.record import record
from interlock.backends.etcd.address import Endpoint
from interlock.backends.etcd.transport.cluster import ClusterTransport
from interlock.backends.etcd.transport.versions import Bug, bug_of
from interlock.backends.etcd.wire import messages
from interlock.backends.kit.examining import Examiner
from interlock.errors import InterlockError
from interlock.model import Finding

NO_SPACE, CORRUPT = 1, 2
DEFAULT_QUOTA_BYTES = 2 << 30
NEARLY_FULL_SHARE = 0.8


@record
class MemberFacts:
    """The answers of one member; None where it did not tell."""

    label: str
    version: str
    member: int
    leader: int
    size: int  # bytes of its database
    alarms: tuple[tuple[int, int], ...] | None
    members: tuple[tuple[str, bool], ...] | None
    cluster: int = 0


async def examine(transport: ClusterTransport, examiner: Examiner) -> None:
    """Ask each member that the URL names, on a connection of its own."""
    found: list[MemberFacts] = []
    for endpoint in transport.address.endpoints:
        facts = await examiner.answer(
            partial(_ask, transport, endpoint), "etcd-version", server=endpoint.label
        )
        if facts is not None:
            found.append(facts)
    if not found:
        return
    for check in (versions, space, members):
        examiner.extend(list(check(found)))
    examiner.add(
        "etcd-disk",
        "unknown",
        "how long the disks take is not asked: it is wal_fsync_duration_seconds at /metrics of each member; "
        "above 0.1 s, elections end sessions",
    )
    _expect(found, examiner)


async def _ask(transport: ClusterTransport, endpoint: Endpoint, timeout: float) -> MemberFacts:
    connection, status = await transport.greet(endpoint, timeout)

    async def optional(method: bytes, body: bytes) -> bytes | None:
        try:
            return await connection.call(method, body, timeout)
        except InterlockError:  # only root may ask, where users have passwords
            return None

    try:
        alarms = await optional(messages.ALARM, b"")
        members = await optional(messages.MEMBERS, b"")
    finally:
        connection.end("examined")
    return MemberFacts(
        endpoint.label,
        status.version,
        status.member,
        status.leader,
        status.size,
        None if alarms is None else tuple(messages.alarms_of(alarms)),
        None if members is None else tuple(messages.members_of(members)),
        status.cluster,
    )


# -- the checks: pure ----------------------------------------------------------------------------


def versions(found: Sequence[MemberFacts]) -> Iterator[Finding]:
    """etcd-version: bugs of etcd that let two holders in, by the version of every member that was asked."""
    sound: list[str] = []
    for facts in found:
        bug, named = bug_of(facts.version), facts.label if len(found) > 1 else ""
        if not facts.version:
            told = "the member does not tell its version: only root may ask for it"
            yield Finding("etcd-version", "unknown", told, server=named)
        elif bug is Bug.REVOKES:
            yield Finding(
                "etcd-version",
                "danger",
                f"etcd {facts.version}: a leader that was frozen may revoke leases that its successor keeps "
                "(etcd 15247), and then two clients hold a lock for a moment",
                "install 3.4.31, 3.5.13 or later on all members",
                named,
            )
        elif bug is Bug.STALE:
            yield Finding(
                "etcd-version",
                "note",
                f"etcd {facts.version}: a leader that was replaced may answer reads with old data (etcd "
                "20418); locks do not depend on them, registers and listings may be late",
                "install 3.4.42, 3.5.28, 3.6.9 or later on all members",
                named,
            )
        else:
            sound.append(facts.version)
    if sound and len(sound) == len(found):
        yield Finding("etcd-version", "good", f"etcd {', '.join(sorted(set(sound)))} has no known bug here")


def space(found: Sequence[MemberFacts]) -> Iterator[Finding]:
    """etcd-space: a cluster without space is read-only, so nothing is granted or released."""
    known = [facts.alarms for facts in found if facts.alarms is not None]
    kinds = {kind for alarms in known for _, kind in alarms}
    largest = max(facts.size for facts in found)
    used = f"the database has {largest / (1 << 20):.0f} MiB"
    if NO_SPACE in kinds:
        yield Finding(
            "etcd-space",
            "danger",
            "the cluster has the alarm NOSPACE: nothing is granted or released, and sessions run out",
            "etcdctl compact, etcdctl defrag, then etcdctl alarm disarm; or raise --quota-backend-bytes",
        )
    if CORRUPT in kinds:
        yield Finding(
            "etcd-space",
            "danger",
            "the cluster has the alarm CORRUPT: the databases of its members differ",
            "restore the member that differs; see etcd's page on data corruption",
        )
    if not kinds and largest > NEARLY_FULL_SHARE * DEFAULT_QUOTA_BYTES:
        yield Finding(
            "etcd-space",
            "warning",
            f"{used}, and the usual quota is 2048: when it is full, nothing is granted",
            "--auto-compaction-retention, etcdctl defrag, or a larger --quota-backend-bytes",
        )
    elif not kinds and known:
        yield Finding("etcd-space", "good", f"no alarm; {used}")
    elif not kinds:
        yield Finding("etcd-space", "unknown", f"the members do not tell their alarms; {used}")


def members(found: Sequence[MemberFacts]) -> Iterator[Finding]:
    """etcd-members: how many may fail, and whether all are of one cluster."""
    if len({facts.cluster for facts in found}) > 1:
        yield Finding(
            "etcd-members",
            "danger",
            "the URL names members of different clusters, which know nothing of each other's locks",
            "name the members of one cluster",
        )
    listed = next((facts.members for facts in found if facts.members is not None), None)
    if listed is None:
        yield Finding("etcd-members", "unknown", "no member tells who is in the cluster")
        return
    voters, learners = [name for name, learns in listed if not learns], sum(learns for _, learns in listed)
    may_fail = (len(voters) - 1) // 2
    if learners:
        told = f"{learners} of {len(listed)} members only learn, and do not vote yet"
        yield Finding("etcd-members", "note", told, "etcdctl member promote ID")
    if len(voters) == 1:
        yield Finding(
            "etcd-members",
            "warning",
            "the cluster has one member: while it is down nobody gets a lock, and sessions may run out",
            "three or five members, each on a machine of its own",
        )
    elif len(voters) % 2 == 0:
        yield Finding(
            "etcd-members",
            "note",
            f"{len(voters)} members vote: {may_fail} may fail, as of {len(voters) - 1}",
            "an odd number of members",
        )
    else:
        yield Finding("etcd-members", "good", f"{len(voters)} members vote, of which {may_fail} may fail")


def _expect(found: Sequence[MemberFacts], examiner: Examiner) -> None:
    revokes = any(bug_of(facts.version) is Bug.REVOKES for facts in found)
    examiner.expect("a minority of members dies", "yes", "yes", "for an election: about a second")
    examiner.expect("most members die", "yes", "yes", "until a majority is back")
    examiner.expect("the power fails everywhere", "yes", "yes", "until a majority is back")
    examiner.expect("the leader is frozen and wakes up", "yes", "no" if revokes else "yes", "for an election")
    examiner.expect("the network is cut", "yes", "yes", "the side without a majority, until it heals")
    examiner.expect("clocks jump", "yes", "yes", "not at all")
    examiner.expect("the cluster is restored from a snapshot", "yes", "no", "not at all")
