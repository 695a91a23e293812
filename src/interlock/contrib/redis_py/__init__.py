"""interlock behind the lock of redis-py: give `lock_class=Lock` to your client's `lock`, and keep your code.

    from interlock.contrib.redis_py import Lock

    with client.lock("report:daily", timeout=60, lock_class=Lock) as lock:
        lock.lease.token

Same constructor, methods and errors; redis-py's own behaviour is the specification. What differs: a waiter is
woken instead of polling, in the order of arrival, the lock has a `.lease`, and no lock is immortal. Locks of
both kinds exclude each other, so a fleet can change one program at a time.

`lock` and `asynclock` are the two faces -> `possession` (taking and giving back, once for both) over `tokens`
(whose key it is) and `clients` (one interlock client a pool); `errors` are both libraries' at once.
"""

from interlock.contrib.redis_py.asynclock import AsyncLock
from interlock.contrib.redis_py.errors import (
    LockEvicted,
    LockLost,
    LockTimeout,
    LockUnavailable,
    LockUnfit,
)
from interlock.contrib.redis_py.lock import Lock

__all__ = [
    "AsyncLock",
    "Lock",
    "LockEvicted",
    "LockLost",
    "LockTimeout",
    "LockUnavailable",
    "LockUnfit",
]
