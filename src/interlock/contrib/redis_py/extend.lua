-- Move the lapse of an exclusive holder, ours or a foreigner's; also nearer, which a renewal never does.
--
-- KEYS  1 holder  2 waiters
-- ARGV  1 the claim's id, or the whole value of a foreigner's key  2 ms
--       3 '0' add to what is left, '1' replace what is left, '2' replace even where there is no end
--
-- Returns  ms it lives from now (below 1: it is over); nothing if it does not stand

local id, ms, mode = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local held = redis.call('GET', KEYS[1])
if not held or (held ~= id and string.sub(held, 1, #id + 1) ~= id .. '\n') then return false end
local left = redis.call('PTTL', KEYS[1])
if left < 0 and mode ~= '2' then return false end
if mode == '0' then ms = ms + left end
redis.call('PEXPIRE', KEYS[1], string.format('%.0f', ms))
local start, ttl, rest = string.match(held, '^([^\n]*\n%d+\n%d+\n)(%d+)(\n%d+\n.*)$')
if ttl and ms > tonumber(ttl) then -- one that lives for much longer than its ttl is taken for older than a clock set back
  redis.pcall('SET', KEYS[1], start .. string.format('%.0f', ms) .. rest, 'KEEPTTL')
end
if ms < left then -- the head of the queue sleeps until the old lapse: it should look again
  local head = redis.pcall('ZRANGE', KEYS[2], 0, 0)[1]
  local id, channel = string.match(head or '', '^([^\n]*)\n%d+\n%d+\n%d+\n%d+\n([^\n]*)\n')
  if id then redis.pcall(string.byte(channel) == 83 and 'SPUBLISH' or 'PUBLISH', channel, id .. ' 0') end
end
return ms
