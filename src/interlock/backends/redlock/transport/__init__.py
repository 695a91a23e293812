"""Two ways to ask all nodes at once: blocking, on the caller's own thread, and on an asyncio event loop."""
