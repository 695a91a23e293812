"""Names members of the cluster whose version has a known bug that matters for locks."""

from __future__ import annotations

import re
from enum import Enum

from interlock._support import notices

REVOKES = {(3, 4): 31, (3, 5): 13}  # the first release of each line in which 15247 is mended,
STALE = {(3, 4): 42, (3, 5): 28, (3, 6): 9}  # and 20418
NOTICE_REVOKES = (
    "%s runs etcd %s: a leader that was frozen may revoke leases that its successor keeps (etcd 15247), and "
    "then two clients hold a lock for a moment; install 3.4.31, 3.5.13 or later on all members"
)
NOTICE_STALE = (
    "%s runs etcd %s: a leader that was replaced may answer reads with old data (etcd 20418); locks do not "
    "depend on them, but registers and listings may be read late; install 3.4.42, 3.5.28, 3.6.9 or later on "
    "all members"
)
NUMBERS = re.compile(r"(\d{1,6})\.(\d{1,6})\.(\d{1,6})\S{0,40}\Z", re.ASCII)
MAX_MEMBERS_REMEMBERED = 1000  # members that are remembered, so that each is named once in a process


class Bug(Enum):
    """What a version does wrong that matters for locks."""

    REVOKES = NOTICE_REVOKES
    STALE = NOTICE_STALE


_named: dict[tuple[str, str], None] = {}


def bug_of(version: str) -> Bug | None:
    """The worst known bug of a version; None if there is none, or the version is not known."""
    found = NUMBERS.match(version)
    if found is None:
        return None
    line, release = (int(found[1]), int(found[2])), int(found[3])
    if line < (3, 4) or release < REVOKES.get(line, 0):
        return Bug.REVOKES
    return Bug.STALE if release < STALE.get(line, 0) else None


def notice_for(version: str) -> str | None:
    """The warning about a version, with blanks for the place and the version; None if there is none."""
    bug = bug_of(version)
    return None if bug is None else bug.value


def check_version(label: str, version: str) -> None:
    """Warn of a member with a known bug, once in a process."""
    if (label, version) in _named:
        return
    notice = notice_for(version)
    if notice is not None and len(_named) < MAX_MEMBERS_REMEMBERED:
        _named[label, version] = None
        notices.warn(notice % (label, version))
