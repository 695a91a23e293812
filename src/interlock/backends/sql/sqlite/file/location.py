"""Where a lock file may lie: on a local disk, in a directory of one's own, writable."""

from __future__ import annotations

import errno
import os
import re
import stat
import sys
from collections.abc import Iterator
from contextlib import suppress

from interlock._support import standard_streams
from interlock.backends.sql.sqlite.file import errors, ownership
from interlock.errors import InterlockError, InvalidURL

MOUNTS = "/proc/self/mountinfo"
ESCAPED = re.compile(r"\\([0-7]{3})")

# Between machines SQLite's write-ahead log has no shared memory, and on many of these not even locks.
NETWORK = frozenset(
    "9p acfs afs beegfs ceph cifs coda davfs fuse.ceph fuse.davfs fuse.gcsfuse fuse.glusterfs fuse.juicefs "
    "fuse.moosefs fuse.mfs fuse.rclone fuse.s3fs fuse.sshfs fuse.vmhgfs-fuse fuse.weed gfs gfs2 glusterfs "
    "gpfs lustre ncpfs nfs nfs4 ocfs2 orangefs panfs pvfs2 smb2 smb3 smbfs vboxsf webdav".split()
)


def default_path() -> str:
    """The lock file of this user: where programs keep their state on this system.

    `StoreUnfit` if nothing tells where that is.
    """
    if sys.platform == "win32":
        state = os.environ.get("LOCALAPPDATA") or os.path.expanduser("~\\AppData\\Local")
    elif sys.platform == "darwin":
        state = _in_home("Library/Application Support")
    else:
        state = os.environ.get("XDG_STATE_HOME", "")
        if not os.path.isabs(state):  # the standard says: a relative one is to be ignored
            state = _in_home(".local/state")
    if not os.path.isabs(state):
        # Each working directory would have a file of its own, and each file a holder.
        raise errors.unfit(
            "the default lock file",
            "has no place, because HOME is missing or not an absolute path; set $INTERLOCK_URL to the URL "
            "of a store (sqlite:////path/to/locks.db), or HOME to the home directory of this user",
            errno.ENOENT,
        )
    return os.path.join(state, "interlock", "locks.db")


def _in_home(folder: str) -> str:
    """A folder of the user; an empty HOME counts as a missing one, and not as the root of the filesystem."""
    if os.environ.get("HOME") != "":
        return os.path.expanduser(f"~/{folder}")
    import pwd

    try:
        return os.path.join(pwd.getpwuid(os.getuid()).pw_dir, folder)
    except KeyError:
        return folder


def absolute(path: str) -> str:
    """The absolute path of a file; `StoreUnfit` if it is relative to a directory that was removed."""
    try:
        return os.path.abspath(path)
    except FileNotFoundError as error:
        why = "cannot be found, because the working directory was removed; give its absolute path"
        raise errors.unfit(path, why, errno.ENOENT) from error


def settle(path: str | None, allow_network_filesystem: bool) -> tuple[str, str]:
    """Check where the file lies, and make it; return its absolute path and the kind of filesystem.

    Missing directories are made with mode 0700 and the file with 0600: whoever may write it can take any
    lock. Nothing is made in a directory that cannot be trusted (see `ownership`).
    """
    if path == ":memory:":
        raise InvalidURL("a lock file cannot be :memory:, which no other process sees; use memory://")
    path = absolute(default_path() if path is None else path)
    try:
        return path, _settle(path, allow_network_filesystem)
    except InterlockError:
        raise
    except OSError as error:  # a name that is too long, or a disk that fails
        why = f"cannot be reached ({error.strerror or error}); name another file"
        raise errors.unfit(path, why, error.errno or errno.EINVAL) from error


def _settle(path: str, allow_network_filesystem: bool) -> str:
    """Do the work of `settle` for an absolute path; return the kind of filesystem."""
    if os.path.isdir(path):
        raise errors.unfit(path, f"is a directory; name a file in it, such as {path}/locks.db", errno.EISDIR)
    directory = os.path.dirname(path)
    standard_streams.occupy()
    ownership.check(path)
    _make_directory(path, directory)
    kind = filesystem(directory)
    if kind in NETWORK and not allow_network_filesystem:
        raise errors.unfit(
            path,
            f"lies on a network filesystem ({kind}), where locks between machines cannot be trusted; name a "
            "file on a local disk, or add ?allow_network_filesystem=1 if only this machine uses it",
        )
    ownership.check(path)  # again: another user may have been quicker to make one of the directories
    make_file(path)
    return kind


def _make_directory(path: str, directory: str) -> None:
    try:
        _make_private(directory)
    except OSError as error:
        raise errors.unfit(
            path,
            f"needs the directory {directory}, which cannot be made ({error.strerror}); "
            "make it, or name another file",
            error.errno or errno.EINVAL,
        ) from error


def _make_private(directory: str) -> None:
    """Make a directory and all that are missing above it for us alone, whatever the umask is."""
    # Not by os.makedirs, which gives its mode to the last one only: the umask decides about the others.
    if os.path.isdir(directory):
        return
    _make_private(os.path.dirname(directory))
    try:
        os.mkdir(directory, 0o700)
    except FileExistsError:
        if not os.path.isdir(directory):  # otherwise another process was quicker
            raise


def make_file(path: str) -> None:
    """Make the file, empty, if there is none; refuse it if it cannot be written."""
    if not os.path.exists(path):
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except FileExistsError:
            pass  # another process was quicker
        except OSError as error:
            raise (errors.full(path) if error.errno == errno.ENOSPC else errors.read_only(path)) from error
    # An existing file is never opened here: closing it again would drop the locks of every connection
    # this process has on it (POSIX), and two processes would write at once.
    if not os.access(path, os.R_OK | os.W_OK) or not os.access(os.path.dirname(path), os.W_OK | os.X_OK):
        raise errors.read_only(path)
    if os.stat(path).st_nlink > 1:
        raise errors.unfit(
            path,
            "has a second name (a hard link), under which SQLite would keep a log of its own: two holders; "
            "remove the other name, or use a symbolic link",
            errno.EMLINK,
        )
    if is_mount_point(os.path.realpath(path), _mounts()):
        raise errors.unfit(
            path,
            "is mounted by itself, so SQLite would keep its log here in another folder than the programs "
            "that "
            "reach it by its own name: two holders; mount the folder that it lies in",
            errno.EMLINK,
        )


def make_beside(path: str, suffix: str) -> None:
    """Make a file of the database, empty, with the owner and mode that SQLite would give it, if there is
    none.
    """
    beside = path + suffix
    if os.path.exists(beside):
        return
    main = os.stat(path)
    mode = stat.S_IMODE(main.st_mode) & 0o666
    try:
        made = os.open(beside, os.O_CREAT | os.O_EXCL | os.O_RDWR, mode)
    except FileExistsError:
        return  # another process was quicker
    except OSError as error:
        raise (errors.full(path) if error.errno == errno.ENOSPC else errors.read_only(path)) from error
    try:
        if os.name == "posix":
            os.fchmod(made, mode)  # whatever the umask is
            with suppress(PermissionError):  # root may give it away; another user to a group of its own
                os.fchown(made, main.st_uid if os.geteuid() == 0 else -1, main.st_gid)
    finally:
        os.close(made)


def filesystem(directory: str) -> str:
    """The kind of filesystem a directory lies on, where the system tells; otherwise ''."""
    if sys.platform == "win32":
        return "smb3" if os.path.realpath(directory).startswith("\\\\") else ""
    return mounted(os.path.realpath(directory), _mounts())


def _mounts() -> str:
    """The text of /proc/self/mountinfo; '' where there is none."""
    try:
        with open(MOUNTS, encoding="utf-8", errors="surrogateescape", newline="") as mounts:
            return mounts.read()
    except OSError:
        return ""


def mounted(directory: str, mountinfo: str) -> str:
    """The filesystem under `directory` according to the text of /proc/self/mountinfo; the last mount wins."""
    best, kind = -1, ""
    for point, found in _mount_points(mountinfo):
        if directory == point or directory.startswith(point.rstrip("/") + "/"):
            if len(point) >= best:
                best, kind = len(point), found
    return kind


def is_mount_point(path: str, mountinfo: str) -> bool:
    """Whether something is mounted just at `path`, as `docker -v /host/locks.db:/locks.db` does."""
    return any(point == path for point, _ in _mount_points(mountinfo))


def _mount_points(mountinfo: str) -> Iterator[tuple[str, str]]:
    """Where something is mounted, and the kind of filesystem."""
    # Not splitlines, which would also cut at characters that may stand in a name.
    for line in mountinfo.split("\n"):
        fields, _, rest = line.partition(" - ")
        if fields.count(" ") > 4 and rest:
            yield _unescape(fields.split(" ")[4]), rest.split(" ")[0]


def _unescape(point: str) -> str:
    """The kernel writes blanks, line ends and backslashes of a name as octal numbers."""
    return ESCAPED.sub(lambda found: chr(int(found[1], 8)), point)
