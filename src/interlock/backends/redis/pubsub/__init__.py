"""How waiters learn of grants: the subscription, its reader, and the registry of waiters."""
