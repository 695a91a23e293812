-- Give this node its vote, if the quarantine that the caller saw is still the same, and is over.
--
-- KEYS  1 quorum, see seat.lua
-- ARGV  1 run id  2 since ms, as it was seen  3 ms the quarantine lasts  4 floor: no number below it is accepted
--       5 the start in which it has begun (0: whatever it remembers of that)
--
-- Returns  {us, 1}  it has its vote   {us, 0}  it is another quarantine, or not over yet

-- include ../../redlock/wire/seat.lua

local quorum = KEYS[1]
local t = redis.call('TIME')
local us = t[1] .. string.format('%06d', t[2])
local clock = tonumber(us)
local seat, run = marks(quorum)
local f = redis.call('ZMSCORE', quorum, 'since', 'floor', 'begun', 'ready')
local since, floor = -tonumber(f[1] or 0), tonumber(f[2] or 0)
if run ~= ARGV[1] or not f[1] or since ~= tonumber(ARGV[2]) then return {clock, 0} end
if math.floor(clock / 1000) < since + tonumber(ARGV[3]) then return {clock, 0} end
local start = tonumber(ARGV[5])
if start > 0 and not (f[3] and -tonumber(f[4] or 0) == start) then return {clock, 0} end
if tonumber(ARGV[4]) > floor then redis.call('ZADD', quorum, ARGV[4], 'floor') end
redis.call('ZREM', quorum, 'since', 'ready')
if seat then redis.call('ZREM', quorum, seat) end
redis.call('ZADD', quorum, -0.2, ARGV[1] .. ':' .. us, 0, 'begun')
return {clock, 1}
