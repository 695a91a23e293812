"""What is asked of a node, as records (`requests`) and as bytes (`packing`), and the Lua scripts that
answer on the node.
"""
