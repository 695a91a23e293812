-- Returns the live claims on one resource.
--
-- KEYS  1 holder  2 records  3 waiters  4 lapses
-- ARGV  1 the caller's channel  2 how many claims at most, from the front ('' all)
--
-- Returns  {now us, capacity, {id, token, ...}, id, record, admitted, lapses in ms, ...}: claims of the
--          caller's channel that this script admitted, then four items for each claim, in no order.
--          Another program's string has neither id nor record: its value may be a secret.

-- include queue.lua

local q = open(KEYS[1], KEYS[2], KEYS[3], KEYS[4], ARGV[1])
save(q)
local found, left = {q.us, standing(q) or 0, q.told}, tonumber(ARGV[2]) or math.huge

local function show(id, record, admitted, lapses)
  for _, part in ipairs({id, record, admitted, lapses}) do found[#found + 1] = part end
  left = left - 1
end

local function pages(key, page) -- all members that have a token, page by page, until enough are collected
  local from, seen = '-inf', nil
  repeat
    seen = redis.call('ZRANGEBYSCORE', key, from, TOKENS, 'WITHSCORES', 'LIMIT', 0, math.min(PAGE, left))
    local members = {}
    for i = 1, #seen, 2 do members[#members + 1] = seen[i] end
    if #members > 0 then page(members) end
    from = '(' .. (seen[#seen] or '')
  until #members == 0 or left <= 0
end

if q.held and left > 0 then
  local id, r = split(q.held)
  show(r and id or '', r and pack(r) or '', 1, redis.call('PTTL', q.k))
end
if q.n > 0 and left > 0 then
  pages(q.e, function(members)
    local ids = {}
    for i, member in ipairs(members) do ids[i] = string.sub(member, 2) end
    local records, lapses = redis.call('HMGET', q.h, unpack(ids)), redis.call('ZMSCORE', q.e, unpack(ids))
    for i, id in ipairs(ids) do
      if parse(records[i]) then show(id, records[i], 1, tonumber(lapses[i] or 0) - q.now) end
    end
  end)
end
local shown = {}
if q.waiting > 0 and left > 0 then
  pages(q.w, function(members)
    local ids, records = {}, {}
    for i, member in ipairs(members) do ids[i], records[i] = string.match(member, '^([^\n]*)\n(.*)$') end
    for i, at in ipairs(redis.call('ZMSCORE', q.w, unpack(ids))) do
      if tonumber(at or 0) > q.now and not shown[ids[i]] then -- a late copy of a request may have left a second record
        shown[ids[i]] = true
        show(ids[i], records[i], 0, tonumber(at) - q.now)
      end
    end
  end)
end
return found
