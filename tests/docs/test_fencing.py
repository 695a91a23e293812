"""The views of Django in docs/guide/fencing.md: whether the lock is still held when the transaction is committed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.docs.pages import FENCE
from tests.house.source import ROOT, SRC

PAGE = (ROOT / "docs" / "guide" / "fencing.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("\n### The lock goes around the transaction\n")[2].partition("\n### ")[0]
REMEDY = next(found[2] for found in FENCE.finditer(SECTION) if "django" in found[2])

PROGRAM = """
import json, sys

import django
from django.conf import settings
from django.urls import path

import interlock
from interlock import guards

database = {{"ENGINE": "django.db.backends.sqlite3", "NAME": "shop.db", "ATOMIC_REQUESTS": True}}
settings.configure(
    DATABASES={{"default": database}}, ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], SECRET_KEY="x", USE_TZ=True
)
django.setup()
client = interlock.connect()

{remedy}

def trap(request, number):
    with client.lock(f"account:{{number}}"):
        return HttpResponse("paid")

urlpatterns = [path("pay/<number>", pay), path("trap/<number>", trap)]

from django.db import connection, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.test import Client

guards.sql.create(connection)
commit, held = BaseDatabaseWrapper.commit, []

def watched(self):
    held.append(client.lock("account:7").locked())
    commit(self)

BaseDatabaseWrapper.commit = watched
answers = [Client().get(f"/{{view}}/7").content.decode() for view in ("trap", "pay")]
for above in (client.lock, client.once):
    for atomic in (transaction.atomic, transaction.atomic(durable=True)):

        @above("account:{{number}}")
        @atomic
        def decorated(number):
            return "paid"

        answers.append(decorated(7))
print(json.dumps([answers, held]))
"""


def test_under_atomic_requests_the_remedies_hold_their_lock_at_the_commit_and_the_trap_does_not(
    tmp_path: Path,
) -> None:
    script = tmp_path / "shop.py"
    script.write_text(PROGRAM.format(remedy=REMEDY), encoding="utf-8")
    env = {**os.environ, "PYTHONPATH": str(SRC), "INTERLOCK_URL": f"sqlite:///{tmp_path}/locks.db"}
    done = subprocess.run(
        [sys.executable, script], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == [["paid"] * 6, [False] + [True] * 5]
