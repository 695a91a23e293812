"""Programs that show interlock at work and put it to the test."""
