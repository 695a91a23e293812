-- Remove one claim, or every holder, from this node for an operator.
--
-- KEYS  1 holder  2 records  3 waiters  4 lapses  5 quorum
-- ARGV  1 id ('' every holder)  2 reason  3 ms to remember it at least  4 run id
--       5 1: also a string that another program wrote  6 1: and also if it has no expiry
--
-- Returns  {us, 1 or -9, found}  whether this node has a vote, and what the eviction on one server answers

-- include ../../redlock/wire/seat.lua

local function evict(KEYS, ARGV)
-- include evict.lua
end

local found = evict(KEYS, {ARGV[1], ARGV[2], '', ARGV[3], ARGV[5], ARGV[6]})
local vote = seated(marks(KEYS[5]), ARGV[4])
return {tonumber(found[1]), vote and 1 or -9, found}
