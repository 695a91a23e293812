-- Enter a claim if it is new, and say where it stands.
--
-- KEYS  1 holder  2 records  3 waiters  4 lapses  5 last token
-- ARGV  1 id  2 ttl ms  3 permits  4 capacity  5 queued (0, 1)  6 place ttl ms
--       7 the record's end: channel \n bytes of note \n note who  8 how many tokens after its own are its own, too
--
-- Returns  token                         granted
--          {1, token, id, token, ...}    granted, and who else of the caller's channel was let in meanwhile
--          {0, ahead, ms, token, id, token...}  busy: so many are ahead, look again after so many ms; its own
--                                        place has this token (0: it was not queued)
--          {-1, reason}                  evicted by an operator
--          {-2, capacity}                live claims stand under another capacity

local id, ttl = ARGV[1], ARGV[2]
local plain = ARGV[3] == '1' and ARGV[4] == '1'
local there = plain and redis.call('EXISTS', KEYS[1], KEYS[2])

if there == 0 then -- the quick way: nobody is there
  local t = redis.call('TIME')
  local us = string.format('%d%06d', t[1], t[2])
  local token, digits = tonumber(us), us
  local last = tonumber(redis.call('SET', KEYS[5], string.format('%.0f', token + ARGV[8]), 'GET') or 0) or 0
  if token <= last then -- the clock was ahead once: above every token so far
    token = last + 1
    digits = string.format('%.0f', token)
    redis.call('SET', KEYS[5], string.format('%.0f', token + ARGV[8]))
  end
  redis.call('SET', KEYS[1], id .. '\n' .. digits .. '\n' .. us .. '\n' .. ttl .. '\n1\n' .. ARGV[7], 'PX', ttl)
  return token
end

if plain then -- or we are, or another is and we line up behind those who wait
  local held = redis.call('GET', KEYS[1])
  if held and string.sub(held, 1, #id + 1) == id .. '\n' then
    local left = redis.call('PTTL', KEYS[1])
    if left >= 0 and left < tonumber(ttl) then redis.call('PEXPIRE', KEYS[1], ttl) end
    return tonumber(string.match(held, '\n(%d+)', #id + 1))
  end
  local t = redis.call('TIME')
  local now = t[1] * 1000 + math.floor(t[2] / 1000)
  local f, first, waiting, usual = {}, nil, 0, there == 1 -- a holder and no records: nobody waits
  if there == 2 then
    f = redis.call('HMGET', KEYS[2], id, '!' .. id, '#c', '#n', '#u')
    first = redis.call('ZRANGE', KEYS[4], 0, 0, 'WITHSCORES')[2]
    usual = not f[1] and not f[2] and f[3] == '1' and first and tonumber(first) > now
    waiting = redis.call('ZCARD', KEYS[3])
  end
  if held and usual then
    local again = (tonumber(first) or 0) - now -- before the one just ahead lapses: an early look does no harm
    if waiting == 0 then
      again = redis.call('PTTL', KEYS[1])
      if not string.match(held, '^[^\n]*\n%d+\n%d+\n%d+\n1\n') and (again < 0 or again > 50) then again = 50 end
    end
    local digits = '0'
    if ARGV[5] == '1' then
      local us = string.format('%d%06d', t[1], t[2])
      digits = us
      local last = tonumber(redis.call('SET', KEYS[5], string.format('%.0f', us + ARGV[8]), 'GET') or 0) or 0
      if tonumber(us) <= last then
        digits = string.format('%.0f', last + 1)
        redis.call('SET', KEYS[5], string.format('%.0f', last + 1 + ARGV[8]))
      end
      local lapses, expires = now + ARGV[6], tonumber(f[5] or 0)
      local record = digits .. '\n' .. us .. '\n' .. ttl .. '\n1\n' .. ARGV[7]
      local stale = waiting == 0 or lapses > expires
      if stale then expires = math.max(expires, lapses + 30000) end
      redis.call('HSET', KEYS[2], id, record, '#c', 1, '#u', expires)
      redis.call('ZADD', KEYS[3], digits, id)
      redis.call('ZADD', KEYS[4], lapses, id)
      if stale then
        for key = 2, 4 do redis.call('PEXPIREAT', KEYS[key], expires) end
      end
    end
    return {0, 1 + tonumber(f[4] or 0) + waiting, math.max(1, again), digits}
  end
end

local function number(us) -- the next token: above every one so far, and not below the clock
  local token, last = tonumber(us), tonumber(redis.call('GET', KEYS[5]) or 0) or 0
  if token <= last then us = string.format('%.0f', last + 1) end
  redis.call('SET', KEYS[5], string.format('%.0f', us + ARGV[8]))
  return us
end

-- include queue.lua

local permits, capacity = tonumber(ARGV[3]), tonumber(ARGV[4])
local q = open(KEYS[1], KEYS[2], KEYS[3], KEYS[4], string.match(ARGV[7], '^[^\n]*'))

local function answer(...)
  save(q)
  local reply = {...}
  for _, part in ipairs(q.told) do reply[#reply + 1] = part end
  return reply
end

local reason = redis.call('HGET', q.h, '!' .. id)
if reason then return answer(-1, reason) end

local under = standing(q)
if under and under ~= capacity then return answer(-2, under) end

if is(q, id) then -- let in just now, in passing
  local _, r = split(q.held)
  redis.call('PEXPIRE', q.k, math.max(tonumber(ttl), redis.call('PTTL', q.k)))
  return answer(1, r.token)
end

local r = parse(redis.call('HGET', q.h, id))
if r then
  local rank = redis.call('ZRANK', q.w, id)
  if rank then
    lapse(q, id, q.now + ARGV[6])
    local inside = q.n + ((q.held and capacity == 1) and 1 or 0)
    return answer(0, inside + rank, retry(q, rank), r.token)
  end
  lapse(q, id, q.now + ttl)
  return answer(1, r.token)
end

q.c = capacity
local fits = q.waiting == 0 and taken(q) + permits <= capacity
local inside = q.n + ((q.held and capacity == 1) and 1 or 0)
if not fits and ARGV[5] ~= '1' then return answer(0, inside + q.waiting, retry(q, q.waiting), '0') end

local digits = number(q.us)
r = parse(table.concat({digits, q.us, ttl, permits, ARGV[7]}, '\n'))
if fits and capacity == 1 and permits == 1 then
  hold(q, id, r, ttl)
  return answer(1, digits)
elseif fits then
  admit(q, id, r, q.now + ttl)
  return answer(1, digits)
end
redis.call('HSET', q.h, id, pack(r), '#c', capacity)
redis.call('ZADD', q.w, digits, id)
if q.waiting == 0 then q.fresh = true end
q.waiting = q.waiting + 1
lapse(q, id, q.now + ARGV[6])
return answer(0, inside + q.waiting - 1, retry(q, q.waiting - 1), digits)
