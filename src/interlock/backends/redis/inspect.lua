-- The live claims on one resource.
--
-- KEYS  1 holder  2 records  3 waiters  4 lapses
-- ARGV  1 the caller's channel
--
-- Returns  {now us, capacity, {id, token, ...}, id, record, admitted, lapses in ms, ...}: who of the caller's
--          channel was let in by this look, then four for each claim, in no order. Another program's string has neither
--          id nor record: its value may be a secret.

-- include queue.lua

local q = open(KEYS[1], KEYS[2], KEYS[3], KEYS[4], ARGV[1])
save(q)
local found = {q.us, standing(q) or 0, q.told}

local function show(id, record, admitted, left)
  for _, part in ipairs({id, record, admitted, left}) do found[#found + 1] = part end
end

if q.held then
  local id, r = split(q.held)
  show(r and id or '', r and pack(r) or '', 1, redis.call('PTTL', q.k))
end
local lapses = redis.call('ZRANGE', q.e, 0, -1, 'WITHSCORES')
for i = 1, #lapses, 2 do
  local id = lapses[i]
  if string.sub(id, 1, 1) ~= '!' then
    local waits = redis.call('ZSCORE', q.w, id)
    show(id, redis.call('HGET', q.h, id) or '', waits and 0 or 1, tonumber(lapses[i + 1]) - q.now)
  end
end
return found
