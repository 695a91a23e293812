-- Return what this node remembers of the quorum; a node that lost its memory begins its quarantine.
--
-- run    the process that checked in last      vote     the process that has a vote: this one, or there is none
-- since  when its quarantine began, ms         top      the highest number it accepted, never below the floor
-- floor  no number up to it is accepted        longest  the longest ttl it granted, ms
-- =name  the number of a name, and who set it  durable  every write is on disk before it is answered
--
-- KEYS  1 quorum
-- ARGV  1 run id  2 whether every write is on disk before it is answered (0, 1)  3 1: check in, 0: read only
--
-- Returns  {us, run id, since ms, top, longest ms, floor, fields, run id now, durable}: what the hash says
--          ('' and 0 where it says nothing), then what the caller's connection knows of the server

local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local function seen()
  return redis.call('HMGET', KEYS[1], 'run', 'since', 'top', 'longest', 'floor', 'durable', 'vote')
end

-- A value too long for a listpack makes Redis store the hash as a table: lookups are fast, and HSCAN goes in steps.
local ABOUT = 'what a node of an interlock quorum must not forget, and must forget together: its marker and its numbers'

local f = seen()
if ARGV[3] == '1' and f[1] ~= ARGV[1] then
  if f[1] and f[6] == '1' and ARGV[2] == '1' then -- restarted without loss: every write was on disk
    redis.call('HSET', KEYS[1], 'run', ARGV[1])
  else
    redis.call('HSET', KEYS[1], 'run', ARGV[1], 'since', string.format('%.0f', now), 'about', ABOUT)
  end
  f = seen()
end
if ARGV[3] == '1' then
  if f[6] ~= ARGV[2] then redis.call('HSET', KEYS[1], 'durable', ARGV[2]) end
  if not f[2] and f[7] ~= ARGV[1] then redis.call('HSET', KEYS[1], 'vote', ARGV[1]) end
end
local function count(value) return tonumber(value or 0) end
return {tonumber(string.format('%d%06d', t[1], t[2])), f[1] or '', count(f[2]), count(f[3]), count(f[4]),
  count(f[5]), redis.call('HLEN', KEYS[1]), ARGV[1], tonumber(ARGV[2])}
