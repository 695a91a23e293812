-- Enters a claim if it is new, and says whether it holds or where it waits.
--
-- KEYS  1 holder  2 records  3 waiters  4 lapses  5 last token
-- ARGV  1 id  2 ttl ms  3 settings: see below  4 the record's end: channel \n bytes of note \n note who
--       5 the token of its place in the queue, if the caller knows it
--
-- The settings are one argument, because every argument costs time, and the quick path needs only the first letter:
-- p (plain: 1 permit out of 1, and at most 16 tokens) or o (any other), then, with blanks between them, queued (0, 1),
-- place ttl ms, permits, capacity, and how many further tokens are reserved for the claim.
--
-- Returns  token                         granted
--          {1, token, id, token, ...}    granted; other claims of the caller's channel that were admitted meanwhile
--          {0, ahead, ms, token, holder, us, id, token...}  busy: claims ahead of it; ms after which to ask again; the
--                                        token of its place (0: it was not queued); the oldest holder's id and
--                                        record ('': another program's); the time on the server's clock
--          {-1, reason}                  evicted by an operator
--          {-2, capacity}                live claims use another capacity
--          {-3, ''}                      it was released before it arrived

local id, ttl = ARGV[1], ARGV[2]
local plain = string.byte(ARGV[3]) == 112 -- p
local there = plain and redis.call('EXISTS', KEYS[1], KEYS[2], KEYS[3])

-- include clock.lua

local LAST = 79e14 -- no token is above it: numbers of Lua are exact up to 9e15, and lapses begin at 8e15, see queue.lua

local function number(us, more) -- the next token and its digits: above every token so far, and not below the clock
  local token = redis.call('INCRBY', KEYS[5], '16') -- the key has the last token; the 15 after it are reserved, too
  if token < tonumber(us) then -- the clock is ahead, as it usually is, and always after a failover to an older counter
    redis.call('SET', KEYS[5], us)
    token = tonumber(us)
  else
    if token > LAST then error('tokens are used up') end -- nothing was written yet that counts
    us = string.format('%.0f', token)
  end
  if more then redis.call('INCRBY', KEYS[5], more) end
  return token, us
end

if there == 0 then -- the quick path: the resource is free
  local us = clock()
  local token, digits = number(us)
  redis.call('SET', KEYS[1], id .. '\n' .. digits .. '\n' .. us .. '\n' .. ttl .. '\n1\n' .. ARGV[4], 'PX', ttl)
  return token
end

-- apart

local held = plain and redis.call('GET', KEYS[1])
if held and string.sub(held, 1, #id + 1) == id .. '\n' then -- this claim holds it
  local left = redis.call('PTTL', KEYS[1])
  if left >= 0 and left <= tonumber(ttl) then redis.call('PEXPIRE', KEYS[1], ttl) end
  return tonumber(string.match(held, '\n(%d+)', #id + 1))
end

local queued, place, permits, capacity, reserved = string.match(ARGV[3], '^.(%d) (%d+) (%d+) (%d+) (%d+)$')

if held and not ARGV[5] and there < 3 and tonumber(place) <= 60000 then -- another claim holds it: this one queues
  local us = clock()
  local now = lapse_now(us)
  local waiting = there == 2 and redis.call('ZCOUNT', KEYS[3], '(' .. now, '+inf') or 0
  if (waiting > 0) == (there == 2) then -- of the companion keys there are the waiters', or none
    local again, lasts = tonumber(place), string.match(held, '^[^\n]*\n%d+\n%d+\n(%d+)\n1\n')
    if waiting == 0 then
      again = redis.call('PTTL', KEYS[1])
      if not lasts and (again < 0 or again > 50) then again = 50 end
    end
    local digits, entered = '0', 2
    if lasts and again > 4 * lasts + 60000 then
      entered = 0 -- the server's clock was set back: see `plausible`
    elseif queued == '1' then
      digits = select(2, number(us))
      local member = id .. '\n' .. digits .. '\n' .. us .. '\n' .. ttl .. '\n1\n' .. ARGV[4]
      entered = redis.call('ZADD', KEYS[3], 'NX', now + place, id, digits, member)
      if entered < 2 then
        redis.pcall('ZREM', KEYS[3], member) -- its id is there already: it waits, or has lapsed
      elseif waiting == 0 or (string.byte(us, -1) % 8 == 0 and redis.call('PTTL', KEYS[3]) < 300000) then
        redis.pcall('PEXPIRE', KEYS[3], '600000')
      end
    end
    if entered == 2 then return {0, 1 + waiting, math.max(1, again), digits, lasts and held or '', us} end
  end
end

-- include queue.lua

permits, capacity = tonumber(permits), tonumber(capacity)
local q = open(KEYS[1], KEYS[2], KEYS[3], KEYS[4], string.match(ARGV[4], '^[^\n]*'))
q.hint = ARGV[5]

local function answer(...)
  save(q)
  local reply = {...}
  for _, part in ipairs(q.told) do reply[#reply + 1] = part end
  return reply
end

local function busy(rank, token)
  local inside = q.n + ((q.held and capacity == 1) and 1 or 0)
  return answer(0, inside + rank, retry(q, rank, token), token or '0', oldest(q), q.us)
end

local known = redis.call('HMGET', q.h, id, '!' .. id)
if known[2] == '-' then return answer(-3, '') end
if known[2] then return answer(-1, string.sub(known[2], 2)) end

local under = standing(q)
if under and under ~= capacity then return answer(-2, under) end

if is(q, id) then -- opening the queue has just admitted it
  local _, r = split(q.held)
  redis.call('PEXPIRE', q.k, math.max(tonumber(ttl), redis.call('PTTL', q.k)))
  return answer(1, r.token)
end

local r = parse(known[1])
if r then
  ready(q)
  stretch(q, id, q.now + ttl)
  return answer(1, r.token)
end

local at = tonumber(redis.call('ZSCORE', q.w, id) or 0)
local member = at > 0 and find(q, id)
if member and at > q.now then
  ready(q)
  if q.now + place > at then redis.call('ZADD', q.w, q.now + place, id) end
  local _, r = split(member)
  return busy(math.min(redis.call('ZCOUNT', q.w, '-inf', '(' .. r.token), q.waiting - 1), r.token)
elseif at > 0 then
  leave(q, id, member, at > q.now)
end

q.c = capacity
local fits = q.waiting == 0 and taken(q) + permits <= capacity
if not fits and queued ~= '1' then return busy(q.waiting) end

local _, digits = number(q.us, tonumber(reserved) > 15 and reserved - 15 or nil)
r = parse(table.concat({digits, q.us, ttl, permits, ARGV[4]}, '\n'))
if fits then
  admit(q, id, r, q.now + ttl)
  return answer(1, digits)
end
redis.call('ZADD', q.w, q.now + place, id, digits, id .. '\n' .. pack(r))
keep(q.w, tonumber(place))
q.waiting = q.waiting + 1
return busy(q.waiting - 1, digits)
