"""Parts that the sync and the async API share: their mixins, construction, and release on a signal."""
