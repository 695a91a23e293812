"""A Redis Cluster: which node has which slot, requests that find their node, and grants published within a
shard.
"""
