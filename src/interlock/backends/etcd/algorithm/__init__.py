"""The calls of the port on etcd, written once for threads and tasks: claims, releases, waits, renewals,
operators, registers.
"""
