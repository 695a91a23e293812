-- Tell this node, which has no vote, how far the nodes of its quorum have begun; see algorithm/beginning.py.
--
-- KEYS  1 quorum, see seat.lua
-- ARGV  1 run id  2 since ms, as it was seen  3 the number of the start (0: it is not one of those that begin)
--       4 0: it is ready for this start  1: all are, so the quorum has begun
--
-- Returns  {us, 1}  it remembers that   {us, 0}  it is another quarantine or another start, or it has begun already

-- include ../../redlock/wire/seat.lua

local quorum, start = KEYS[1], tonumber(ARGV[3])
local t = redis.call('TIME')
local clock = tonumber(t[1] .. string.format('%06d', t[2]))
local _, run = marks(quorum)
local f = redis.call('ZMSCORE', quorum, 'since', 'floor', 'begun', 'ready')
if run ~= ARGV[1] or not f[1] or -tonumber(f[1]) ~= tonumber(ARGV[2]) or f[3] then return {clock, 0} end
if ARGV[4] == '0' then
  if f[2] then return {clock, 0} end
  redis.call('ZADD', quorum, '-' .. ARGV[3], 'ready')
  return {clock, 1}
end
if start > 0 and -tonumber(f[4] or 0) ~= start then return {clock, 0} end
if start == 0 then redis.call('ZREM', quorum, 'ready') end
redis.call('ZADD', quorum, 0, 'begun')
return {clock, 1}
