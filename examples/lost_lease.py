"""An operator takes a lock away. The holder learns it, and the reason, at its next check."""

import time

import interlock

holder = interlock.connect()
operator = interlock.connect()

try:
    with holder.lock("import") as lease:
        operator.evict("import", reason="the disk is full")
        while True:
            lease.check()  # asks no server; raises LeaseLost
            time.sleep(0.01)  # one step of the work
except interlock.LeaseLost as lost:
    print(lost)
