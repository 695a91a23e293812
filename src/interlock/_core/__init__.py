"""Every algorithm, once, as `async def` over the ports. No clock, thread, loop or random here."""
