"""The algorithm, written once for both transports: claiming, renewing, recovery, inspection, and what they
know of the nodes.
"""
