"""What works in a storm: processes that take locks, by interlock or naive, and count under them."""
