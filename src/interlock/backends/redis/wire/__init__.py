"""The bytes that cross the network: the Redis protocol, keys, requests and replies, and the Lua scripts."""
