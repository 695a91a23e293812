"""Small parts that any module may use: the clock, native threads and locks, records, texts, the log."""
