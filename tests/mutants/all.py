"""Every mutant there is."""

from __future__ import annotations

from tests.mutants import core, etcd, guards, meetings, sessions, sqlite, transports, zookeeper

MUTANTS = [
    *core.MUTANTS,
    *meetings.MUTANTS,
    *sessions.MUTANTS,
    *sqlite.MUTANTS,
    *zookeeper.MUTANTS,
    *etcd.MUTANTS,
    *transports.MUTANTS,
    *guards.MUTANTS,
]
