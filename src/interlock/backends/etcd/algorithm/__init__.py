"""What the store asks of etcd, written once for threads and tasks: sessions, claims, waits, renewals,
inspection, registers.
"""
