"""Attacks on the lock file: other names, other clocks, and calls that come too late."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import quote

import pytest

import interlock
from interlock._runtime.tasks import Tasks
from interlock.backends.sql.sqlite import open_store
from interlock.backends.sql.sqlite.async_store import AsyncSqliteStore
from interlock.errors import StoreUnavailable, StoreUnfit
from interlock.model import Claim
from tests.attacks.stage import ENVIRONMENT, Stage, raises
from tests.patience import PATIENCE

ASK = "import interlock, sys; print(interlock.connect(sys.argv[1]).lock('x').acquire(timeout=0.3))"


def asked_by_another(url: str, *wrapper: str) -> str:
    command = [*wrapper, sys.executable, "-c", ASK, url]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE, check=True, env=ENVIRONMENT
    )
    return done.stdout.strip()


def has_time_namespaces() -> bool:
    if shutil.which("unshare") is None:
        return False
    return subprocess.run(["unshare", "-T", "--boottime", "1", "true"], capture_output=True).returncode == 0


@pytest.mark.parametrize("shift", ["100000", "-100"])
@pytest.mark.skipif(not has_time_namespaces(), reason="this system makes no time namespaces for us")
def test_a_process_in_another_time_namespace_is_kept_out(shift: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/locks.db"
    with interlock.connect(url) as client, client.lock("x") as lease:
        assert asked_by_another(url, "unshare", "-T", "--boottime", shift) == "None"
        lease.renew()


def test_a_file_with_a_second_name_is_refused(tmp_path: Path) -> None:
    with interlock.connect(f"sqlite:///{tmp_path}/locks.db") as client, client.lock("x"):
        os.link(tmp_path / "locks.db", tmp_path / "twin.db")
        with pytest.raises(StoreUnfit, match="second name"):
            interlock.connect(f"sqlite:///{tmp_path}/twin.db")


def has_mounts() -> bool:
    """Whether we may mount something in a namespace of our own."""
    if shutil.which("unshare") is None or shutil.which("mount") is None:
        return False
    return subprocess.run(["unshare", "-m", "mount", "--bind", "/", "/"], capture_output=True).returncode == 0


@pytest.mark.parametrize("name", ["locks.db", "my locks\n\\040.db", "\u2028é.db"])
@pytest.mark.skipif(not has_mounts(), reason="we may mount nothing here")
def test_a_file_that_is_mounted_by_itself_is_refused_and_a_mounted_folder_is_not(
    tmp_path: Path, name: str
) -> None:
    for folder in ("host", "file", "folder"):
        (tmp_path / folder).mkdir(mode=0o700)
    there, mount_point = tmp_path / "host" / name, tmp_path / "file" / name
    mount_point.touch(mode=0o600)
    mount = ["unshare", "-m", "sh", "-c", 'mount --bind "$1" "$2" && shift 2 && exec "$@"', "sh"]
    with interlock.connect(f"sqlite:///{quote(str(there))}") as client, client.lock("x"):
        with pytest.raises(subprocess.CalledProcessError) as failure:
            asked_by_another(f"sqlite:///{quote(str(mount_point))}", *mount, str(there), str(mount_point))
        assert "StoreUnfit" in failure.value.stderr
        assert "mount the folder" in failure.value.stderr
        shared = f"sqlite:///{quote(str(tmp_path / 'folder' / name))}"
        assert asked_by_another(shared, *mount, str(tmp_path / "host"), str(tmp_path / "folder")) == "None"


def test_a_symbolic_link_leads_to_the_same_locks(tmp_path: Path) -> None:
    with interlock.connect(f"sqlite:///{tmp_path}/locks.db") as client, client.lock("x"):
        (tmp_path / "other.db").symlink_to(tmp_path / "locks.db")
        assert asked_by_another(f"sqlite:///{tmp_path}/other.db") == "None"


def test_a_claim_whose_caller_has_given_up_is_not_made_afterwards(tmp_path: Path) -> None:
    async def main() -> None:
        store = open_store(str(tmp_path / "locks.db"), Tasks(), asynchronous=True)
        assert isinstance(store, AsyncSqliteStore)
        busy = asyncio.create_task(store._executor.run(lambda until: time.sleep(0.2), timeout=5.0))
        await asyncio.sleep(0)  # its turn comes first
        with pytest.raises(StoreUnavailable):
            await store.claim(Claim("x", "late", 30.0), 0.05)
        await busy
        assert not (await store.inspect("x")).standings
        await store.close()

    asyncio.run(main())


def test_who_releases_what_was_lost_with_its_file_hears_of_the_loss() -> None:
    stage = Stage()
    lease = stage.client.lock("x").acquire()
    assert lease
    lease._deadline = 0.0
    stage.store.before["release"] = raises(StoreUnfit("the directory is gone"))
    with pytest.raises(interlock.LeaseLost):
        lease.release()
    stage.store.before.clear()
    stage.client.close()
