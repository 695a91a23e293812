"""Tells a holder at once that its session has ended, by a watch on a key that stands under the session's
lease.

Without it a holder learns with its next renewal, up to a third of its ttl later, that somebody has revoked
its lease: an operator, or a leader that was frozen and, before etcd 3.4.31 and 3.5.13, revokes on waking what
its successor keeps (etcd 15247).

The watch begins with the first renewal by the keeper, on the keeper's connection: most programs hold a lock
for a shorter time, and they pay nothing for it. A deletion only wakes: whether the session has ended, a
keep-alive tells.
"""

from __future__ import annotations

from interlock._support import native
from interlock.backends.etcd.algorithm.keeping import keep
from interlock.backends.etcd.algorithm.sessions import Session
from interlock.backends.etcd.algorithm.side import Side
from interlock.backends.etcd.errors import LeaseNotFound, NotAuthenticated
from interlock.backends.etcd.wire.messages import compare_create_revision, put, put_op, txn
from interlock.backends.etcd.wire.watching import Watched
from interlock.errors import InterlockError

REQUEST_TIMEOUT_S = 2.0  # seconds for each of its requests
ROUND_S = 60.0  # seconds after which it looks whether the session is still in use
RETRY_PAUSE_S = 1.0  # seconds until it tries again after a fault


def watch_session(side: Side, session: Session) -> None:
    """Have a session watched from now on, unless it is. Called by the keeper, after a renewal.

    Where gevent or eventlet has replaced the sockets, only one thread can use the keeper's connection, so
    nobody can watch there.
    """
    watched = side.sessions.watched
    if session.lease in watched or not side.transport.for_keeper or native.green("socket"):
        return
    watched.add(session.lease)
    try:
        side.runtime.spawn("interlock-session", lambda: _watch(side, session))
    except RuntimeError:  # no thread can be started; the next renewal tries again
        watched.discard(session.lease)


async def _watch(side: Side, session: Session) -> None:
    try:
        while not session.lapsed(side.runtime.now()) and not side.transport.closed:
            try:
                await _until_deleted(side, session)
            except LeaseNotFound:
                side.sessions.lose(session)
            except (InterlockError, NotAuthenticated):
                await side.transport.pause(RETRY_PAUSE_S)
    finally:
        side.sessions.watched.discard(session.lease)


async def _until_deleted(side: Side, session: Session) -> None:
    """Put the key of a session there, and return when it was deleted though the session lives; or
    `LeaseNotFound`.
    """
    key = side.keys.session(session.lease)
    connection = await side.connection(REQUEST_TIMEOUT_S)
    group = await connection.open_watches([Watched(key, only_deletions=True)], REQUEST_TIMEOUT_S)
    try:
        put_it = put_op(put(key, b"", session.lease))
        await side.txn(txn([compare_create_revision(key, 0)], [put_it]), side.within(REQUEST_TIMEOUT_S))
        while not group.hit:
            if session.lapsed(side.runtime.now()) or side.transport.closed:
                return
            await connection.changed(group, ROUND_S)
            if group.ended or not connection.usable:
                await side.transport.pause(RETRY_PAUSE_S)
                return
    finally:
        connection.close_watches(group)
    await keep(side, session, side.within(REQUEST_TIMEOUT_S))
