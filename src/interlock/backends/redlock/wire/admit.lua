-- Give this node its vote, if the quarantine that the caller saw is still the same, and is over.
--
-- KEYS  1 quorum, see seat.lua
-- ARGV  1 run id  2 since ms, as it was seen  3 ms the quarantine lasts  4 floor: no number below it is accepted
--       5 1: only if no number was ever accepted here
--
-- Returns  {us, 1}  it has its vote   {us, 0}  it is another quarantine, or not over yet

-- include ../../redlock/wire/seat.lua

local quorum = KEYS[1]
local t = redis.call('TIME')
local us = t[1] .. string.format('%06d', t[2])
local clock = tonumber(us)
local seat, run = marks(quorum)
local f = redis.call('ZMSCORE', quorum, 'since', 'floor')
local since, floor = -tonumber(f[1] or 0), tonumber(f[2] or 0)
if run ~= ARGV[1] or not f[1] or since ~= tonumber(ARGV[2]) then return {clock, 0} end
if math.floor(clock / 1000) < since + tonumber(ARGV[3]) then return {clock, 0} end
if ARGV[5] == '1' and floor > 0 then return {clock, 0} end
if tonumber(ARGV[4]) > floor then redis.call('ZADD', quorum, ARGV[4], 'floor') end
redis.call('ZREM', quorum, 'since')
if seat then redis.call('ZREM', quorum, seat) end
redis.call('ZADD', quorum, -0.2, ARGV[1] .. ':' .. us)
return {clock, 1}
