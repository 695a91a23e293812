-- Moves the lapse of one exclusive holder through its own key alone, since a script can reach no other key of a resource
-- whose slot is being moved to another node.
--
-- KEYS  1 holder
-- ARGV  1 id  2 ttl ms
--
-- Returns  1 renewed, 0 it is not in this key

local held = redis.call('GET', KEYS[1])
if not held or string.sub(held, 1, #ARGV[1] + 1) ~= ARGV[1] .. '\n' then return 0 end
local left = redis.call('PTTL', KEYS[1])
if left >= 0 and left < tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return 1
