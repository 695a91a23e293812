"""Connections that carry requests to one server: a pool of sockets for threads, one pipelined connection
for tasks.
"""
