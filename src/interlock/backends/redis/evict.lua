-- Remove one claim, or every holder, for an operator; the victims are told why when they next ask.
--
-- KEYS  1 holder  2 records  3 waiters  4 lapses
-- ARGV  1 id ('' every holder)  2 reason  3 the caller's channel  4 ms to remember it at least
--       5 1: also a string that another program wrote  6 1: and also if it has no expiry
--
-- Returns  {now us, {id, token, ...}, id, record, admitted, lapses in ms, ...}: who of the caller's channel was
--          let in or removed, then four for each claim it met. Another program's string has neither id nor record
--          {now us, type, 0 or 1}  refused, nothing is changed: such a key of another program stands there, with an
--          expiry or without

-- include queue.lua

local wanted, reason, mine, remembered = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])

local function refused(kind, expires)
  local t = redis.call('TIME')
  return {t[1] .. string.format('%06d', t[2]), kind, expires}
end

local value = redis.pcall('GET', KEYS[1])
if type(value) == 'table' then -- a hash or a list: no lock of anybody's
  local kind = redis.pcall('TYPE', KEYS[1])
  if not string.find(value.err, 'WRONGTYPE', 1, true) then return value end
  return refused(kind.ok or 'no string', redis.call('PTTL', KEYS[1]) >= 0 and 1 or 0)
end
if value and wanted == '' and not select(2, split(value)) then -- perhaps a lock; perhaps a session or a counter
  local expires = redis.call('PTTL', KEYS[1]) >= 0
  if ARGV[5] ~= '1' or not (expires or ARGV[6] == '1') then return refused('string', expires and 1 or 0) end
end

local q = open(KEYS[1], KEYS[2], KEYS[3], KEYS[4], mine)
local found = {q.us, q.told}

local function meet(id, r, admitted, left)
  for _, part in ipairs({id, r and pack(r) or '', admitted, left}) do found[#found + 1] = part end
end

local function mark(id, r) -- a foreigner never asks us again: no mark for it
  if not r then return end
  redis.call('HSET', q.h, '!' .. id, reason)
  lapse(q, '!' .. id, q.now + math.max(remembered, tonumber(r.ttl)))
  tell(q, r.channel, id, '0')
end

if q.held then
  local id, r = split(q.held)
  if wanted == '' or (r and wanted == id) then
    meet(r and id or '', r, 1, redis.call('PTTL', q.k))
    redis.call('DEL', q.k)
    q.held = false
    mark(id, r)
  end
end
local ids = {wanted}
if wanted == '' then ids = q.n > 0 and redis.call('ZRANGE', q.e, 0, -1) or {} end
for _, id in ipairs(ids) do
  local r = parse(redis.call('HGET', q.h, id))
  local waits = redis.call('ZSCORE', q.w, id)
  if r and string.sub(id, 1, 1) ~= '!' and (wanted ~= '' or not waits) then
    meet(id, r, waits and 0 or 1, tonumber(redis.call('ZSCORE', q.e, id) or 0) - q.now)
    drop(q, id)
    mark(id, r)
  end
end
settle(q)
save(q)
return found
