-- Moves the lapse of one exclusive holder through its own key alone, since a script can reach no other key of a resource
-- whose slot is being moved to another node. The holder's record is in that key, so its note can be written, too.
--
-- KEYS  1 holder
-- ARGV  1 id  2 ttl ms  3 note ('' as it is, otherwise = and the note)
--
-- Returns  1 renewed, 0 it is not in this key

local held = redis.call('GET', KEYS[1])
if not held or string.sub(held, 1, #ARGV[1] + 1) ~= ARGV[1] .. '\n' then return 0 end
local left = redis.call('PTTL', KEYS[1])
-- Also if that changes nothing: WAIT counts only what its own connection has written, see renew.lua.
if left >= 0 then redis.call('PEXPIRE', KEYS[1], string.format('%.0f', math.max(left, tonumber(ARGV[2])))) end
if ARGV[3] ~= '' then
  local note = string.sub(ARGV[3], 2)
  local head, length, tail = string.match(held, '^([^\n]*\n%d+\n%d+\n%d+\n%d+\n[^\n]*\n)(%d+)\n(.*)$')
  if not head then return 0 end
  local who = string.sub(tail, tonumber(length) + 1)
  redis.call('SET', KEYS[1], head .. #note .. '\n' .. note .. who, 'KEEPTTL')
end
return 1
