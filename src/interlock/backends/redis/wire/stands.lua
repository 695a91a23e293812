-- Whether a claim is live, as holder or waiter. Changes nothing.
--
-- KEYS  1 holder  2 records  3 waiters  4 lapses
-- ARGV  1 id
--
-- Returns  1 it is live, 0 it is not

local id = ARGV[1]
local held = redis.call('GET', KEYS[1])
if held and string.sub(held, 1, #id + 1) == id .. '\n' then return 1 end
local shares = redis.call('HGET', KEYS[2], id)
local at = redis.call('ZSCORE', KEYS[shares and 4 or 3], id)
if not at then return 0 end
local t = redis.call('TIME')
return tonumber(at) > 8e15 + t[1] * 1000 + math.floor(t[2] / 1000) and 1 or 0 -- as lapses are kept: see queue.lua
