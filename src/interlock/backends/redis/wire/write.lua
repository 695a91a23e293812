-- Writes a register if its version is still the one that was read.
--
-- KEYS  1 register (string: version \n writer's id \n = and the value; nothing after the writer: deleted)
--       2 last token
-- ARGV  1 version  2 writer's id  3 = and the value, or '' to delete  4 ms a deleted register stays readable
--       and, if replicas must confirm: 5 1: a write that is repeated is written again, since WAIT counts only what its own
--       connection has written
--
-- Returns  the version that this writer made; 0: the register has another version
--          {version}  the same, but watchers could not be told, since the server refuses to publish

-- include publish.lua

local now = redis.call('GET', KEYS[1])
local version, writer = '0', ''
if now then version, writer = string.match(now, '^(%d+)\n([^\n]*)\n') end
if writer == ARGV[2] then
  if ARGV[5] then redis.call('SET', KEYS[1], now, 'KEEPTTL') end
  return tonumber(version)
end
if version ~= ARGV[1] then return 0 end
local t = redis.call('TIME')
local us = t[1] .. string.format('%06d', t[2])
local new, last = tonumber(us), tonumber(redis.call('GET', KEYS[2]) or 0) or 0
if new <= last then
  new = last + 1
  if new > 79e14 then error('tokens are used up') end -- see claim.lua
  us = string.format('%.0f', new)
end
redis.call('SET', KEYS[2], us)
local value = us .. '\n' .. ARGV[2] .. '\n' .. ARGV[3]
if ARGV[3] == '' then
  redis.call('SET', KEYS[1], value, 'PX', ARGV[4])
else
  redis.call('SET', KEYS[1], value)
end
publish(KEYS[1], us, 'PUBLISH')
return muted and {new} or new
