"""The parts that several stores need, each of them once. A new store begins here.

| module | what a store gets from it |
|---|---|
| `sides` | the sides of one client: the callers' store, the keeper's, and the blocking one of asyncio |
| `listener` | the subscription of a client, kept by one thread, that wakes all waiters |
| `slots` | a bounded pool of connections, for threads |
| `waiters` | the registry of who waits for what, threads and tasks alike |
| `polling` | watching by polling, where the server tells nobody of changes |
| `deadline` | the time of one call, of which every request in it gets what is left |
| `resolver` | lookups of host names with a deadline, shared by all who need the same name |
| `runtime` | the part of a runtime that stores use, and one for plain threads |
| `reader` | who reads a subscription: the listener's thread, or a waiter while nobody else waits |
| `wake_pipe` | wakes a thread that polls file descriptors |
| `executor_thread` | a thread beside the event loop for calls that block, which may own a connection |
| `connect_pace` | how long a call may take to connect, learnt from the connections before |
| `crowds` | many waiters of one client in one queue, of which only the first asks the server |
| `listing` | how long a list of all claims of a session may be used again |
| `libraries` | the error for a client library that is not installed |
| `tasks` | tasks that go on when their caller no longer waits |

Beside the kit, a store may use `interlock._support.native` (mutexes and threads),
`interlock._support.clock` (the boot clock), `_core.admission` (the rule of who is in), `_core.outline`
(what counts as a change of a queue) and `_core.drive` (running a coroutine that never suspends).
"""
