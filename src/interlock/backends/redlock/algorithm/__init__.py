"""The algorithm, written once for both transports: claims, renewals, recovery, operators, and what they
know of the nodes.
"""
