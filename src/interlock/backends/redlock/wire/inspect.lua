-- The live claims on one resource, on this node.
--
-- KEYS  1 holder  2 records  3 waiters  4 lapses  5 quorum
-- ARGV  1 run id  2 at most so many claims, from the front ('' all)
--
-- Returns  {us, 1 or -9, found}  whether this node has a vote, and what the inspection of one server answers

-- include ../../redlock/wire/seat.lua

local function inspect(KEYS, ARGV)
-- include inspect.lua
end

local found = inspect(KEYS, {'', ARGV[2]})
local vote = seated(marks(KEYS[5]), ARGV[1])
return {tonumber(found[1]), vote and 1 or -9, found}
