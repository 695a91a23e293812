"""Connections to the members of a cluster: one for all threads of a client, or one for all tasks of an
event loop.
"""
