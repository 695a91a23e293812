"""A server behind Redis Sentinel: who is master now, and requests that outlive a failover."""
