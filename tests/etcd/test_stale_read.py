"""A leader that was replaced confirms a linearizable read, on versions with a known bug: a keep-alive must not count by that."""

from __future__ import annotations

import pytest

from tests.etcd.stale_read import NotStaged, StaleRead, staged

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

WANTED = 2  # for more, and for other versions: python -m tests.attacks.long.stale_read


def test_a_keep_alive_that_a_stale_read_would_confirm_does_not_count() -> None:
    """See `stale_read`. How often a read is stale there depends on the version; that a keep-alive never counts does not."""
    answered = tries = 0
    with staged() as (cluster, ways):
        while answered < WANTED and tries < 6:
            tries += 1
            scene = StaleRead(cluster, ways, beside=False)
            try:
                scene.run()
            except NotStaged:
                continue
            answered += scene.answered
            assert not scene.counted, "a keep-alive counted that only a deposed leader has confirmed"
    assert answered == WANTED, "the deposed leader hardly ever answered: this shows nothing"
