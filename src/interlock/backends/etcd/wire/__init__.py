"""The bytes that cross the network: protobuf messages, HTTP/2 frames, gRPC calls, watches, keys and
values. No I/O.
"""
