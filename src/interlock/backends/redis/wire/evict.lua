-- Removes one claim, or every holder, for an operator. The evicted clients learn the reason with their next request.
--
-- KEYS  1 holder  2 records  3 waiters  4 lapses
-- ARGV  1 id ('' every holder)  2 reason  3 the caller's channel  4 ms to remember it at least
--       5 1: also a string that another program wrote  6 1: even if that has no expiry
--       and, to evict all holders in slices: 7 how many at most  8 none above this token ('' the first time)
--
-- Returns  {now us, {id, token, ...}, more, id, record, admitted, lapses in ms, ...}: claims of the caller's channel
--          that were admitted or removed; '' or, if holders are left, the token up to which they are; then four items for
--          each evicted claim. Another program's string has neither id nor record
--          {now us, type, 0 or 1}  refused, nothing was changed: a key of another program is in the way; 1 if it has
--          an expiry, 0 if not

-- include queue.lua

local wanted, reason, mine, remembered = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])

local function refused(kind, expires)
  local t = redis.call('TIME')
  return {t[1] .. string.format('%06d', t[2]), kind, expires}
end

local value = redis.pcall('GET', KEYS[1])
if type(value) == 'table' then -- a hash or a list: not a lock of any program
  local kind = redis.pcall('TYPE', KEYS[1])
  if not string.find(value.err, 'WRONGTYPE', 1, true) then return value end
  return refused(kind.ok or 'no string', redis.call('PTTL', KEYS[1]) >= 0 and 1 or 0)
end
if value and wanted == '' and not select(2, split(value)) then -- it may be a lock, but also a session or a counter
  local expires = redis.call('PTTL', KEYS[1]) >= 0
  if ARGV[5] ~= '1' or not (expires or ARGV[6] == '1') then return refused('string', expires and 1 or 0) end
end

local q = open(KEYS[1], KEYS[2], KEYS[3], KEYS[4], mine)
local found = {q.us, q.told, ''}

local function meet(id, r, admitted, left)
  for _, part in ipairs({id, r and pack(r) or '', admitted, left}) do found[#found + 1] = part end
  if r then -- otherwise it is another program's, which never asks us
    mark(q, id, '=' .. reason, q.now + math.max(remembered, tonumber(r.ttl)))
    tell(q, r.channel, id, '0')
  end
end

local function evict_holder()
  local id, r = split(q.held)
  if wanted ~= '' and not (r and wanted == id) then return end
  local left = redis.call('PTTL', q.k)
  ready(q)
  redis.call('DEL', q.k)
  q.held = false
  meet(r and id or '', r, 1, left)
end

local function evict_sharers(ids)
  local records = redis.call('HMGET', q.h, unpack(ids))
  local lapses = redis.call('ZMSCORE', q.e, unpack(ids))
  unshare(q, ids)
  for i, id in ipairs(ids) do
    local r = parse(records[i])
    if r then meet(id, r, 1, tonumber(lapses[i] or 0) - q.now) end
  end
end

local function evict_all_sharers()
  local upto = ARGV[8] ~= '' and ARGV[8] -- otherwise claims that this eviction admits would be evicted, too
    or redis.call('ZREVRANGEBYSCORE', q.e, TOKENS, '-inf', 'WITHSCORES', 'LIMIT', 0, 1)[2] or '0'
  local most, ids = tonumber(ARGV[7] or PAGE), nil
  repeat
    ids = redis.call('ZRANGEBYSCORE', q.e, '-inf', upto, 'LIMIT', 0, most)
    for i, id in ipairs(ids) do ids[i] = string.sub(id, 2) end
    if #ids > 0 then evict_sharers(ids) end
  until #ids < most or ARGV[7]
  if #ids == most then found[3] = upto end
end

if q.held then evict_holder() end
if wanted == '' then
  if q.n > 0 then evict_all_sharers() end
elseif parse(redis.call('HGET', q.h, wanted)) then
  evict_sharers({wanted})
else
  local at, member = tonumber(redis.call('ZSCORE', q.w, wanted) or 0), nil
  if at > q.now then member = find(q, wanted) end
  if member then
    leave(q, wanted, member, true)
    meet(wanted, select(2, split(member)), 0, at - q.now)
  end
end
settle(q)
save(q)
return found
