"""Ways of waiting: threads and tasks. The third, simulated, is in `interlock.testing`."""
