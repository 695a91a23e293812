-- Give this node its vote, if the quarantine that the caller saw is still the same, and is over.
--
-- KEYS  1 quorum
-- ARGV  1 run id  2 since ms, as it was seen  3 ms the quarantine lasts  4 floor: no number below it is accepted
--       5 1: only if no number was ever accepted here
--
-- Returns  {us, 1}  it has its vote   {us, 0}  it is another quarantine, or not over yet

local t = redis.call('TIME')
local clock = tonumber(string.format('%d%06d', t[1], t[2]))
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local f = redis.call('HMGET', KEYS[1], 'run', 'since', 'floor', 'top')
if f[1] ~= ARGV[1] or f[2] ~= ARGV[2] then return {clock, 0} end
if now < tonumber(f[2]) + tonumber(ARGV[3]) then return {clock, 0} end
local floor, top = tonumber(ARGV[4]), tonumber(f[4] or 0)
if ARGV[5] == '1' and top > 0 then return {clock, 0} end
if floor > tonumber(f[3] or 0) then redis.call('HSET', KEYS[1], 'floor', ARGV[4]) end
if floor > top then redis.call('HSET', KEYS[1], 'top', ARGV[4]) end
redis.call('HDEL', KEYS[1], 'since')
redis.call('HSET', KEYS[1], 'vote', ARGV[1])
return {clock, 1}
