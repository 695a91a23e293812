"""What the sync and the async API share, and what they offer beside their classes."""
