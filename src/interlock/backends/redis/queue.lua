-- What the scripts share: one resource's queue. Included after each script's quick way out.
--
-- holder   string   an exclusive holder, ours or a foreigner's: id \n record; lapses with the key
-- records  hash     id -> record; !id -> an operator's reason; #c capacity, #n and #a how many are admitted
--                   here and with how many permits, #u when the companions expire
-- waiters  zset     ids by token: whoever is not admitted yet
-- lapses   zset     every field of records that can lapse, by the server's clock in ms
--
-- A record is token \n since (us) \n ttl (ms) \n permits \n channel \n bytes of note \n note who.
-- A claim of 1 permit out of 1 is admitted into the holder's key; all others into the companions.

local RECORD = '^(%d+)\n(%d+)\n(%d+)\n(%d+)\n([^\n]*)\n(%d+)\n(.*)$'
local SLACK = 30000 -- ms the companions outlive the last lapse: renewals need not move their expiry each time
local FOREIGN = 50 -- ms after which the head looks again at a foreigner's key: its release wakes nobody

local function parse(record)
  local token, since, ttl, permits, channel, length, tail = string.match(record or '', RECORD)
  if not token then return nil end
  return {token = token, since = since, ttl = ttl, permits = tonumber(permits), channel = channel,
    length = tonumber(length), tail = tail}
end

local function pack(r)
  return table.concat({r.token, r.since, r.ttl, r.permits, r.channel, r.length, r.tail}, '\n')
end

local function split(value) -- the holder's key: id and record; a foreigner's value is its id
  local id, rest = string.match(value, '^([^\n]*)\n(.*)$')
  local record = parse(rest)
  if record then return id, record end
  return value, nil
end

-- include publish.lua

local function tell(q, channel, id, token)
  if channel == q.mine then -- the caller's own: told in the reply, no trip through the subscription
    q.told[#q.told + 1] = id
    q.told[#q.told + 1] = token
  else
    publish(channel, id .. ' ' .. token)
  end
end

local function drop(q, id) -- out of the companions: a waiter, an admitted claim or a mark
  redis.call('ZREM', q.e, id)
  local r = parse(redis.call('HGET', q.h, id))
  redis.call('HDEL', q.h, id)
  if redis.call('ZREM', q.w, id) == 1 then
    q.waiting = q.waiting - 1
  elseif r then
    q.n = q.n - 1
    q.a = q.a - r.permits
    q.counted = true
  end
end

local function lapse(q, id, at) -- never nearer
  local old = tonumber(redis.call('ZSCORE', q.e, id) or 0)
  if at > old then
    redis.call('ZADD', q.e, at, id)
    if old == 0 and redis.call('ZCARD', q.e) == 1 then q.fresh = true end -- a new key has no expiry yet
    if at > q.latest then q.latest = at end
  end
end

local function hold(q, id, r, left) -- into the holder's key
  q.held = id .. '\n' .. pack(r)
  redis.call('SET', q.k, q.held, 'PX', left)
end

local function admit(q, id, r, at) -- into the companions
  redis.call('HSET', q.h, id, pack(r))
  lapse(q, id, at)
  q.n = q.n + 1
  q.a = q.a + r.permits
  q.counted = true
end

local function taken(q) -- permits in use
  if q.held and q.c == 1 then return q.a + 1 end
  return q.a
end

local function settle(q) -- admit from the head while it fits: a dead head is skipped, nobody overtakes
  while q.waiting > 0 do
    local id = redis.call('ZRANGE', q.w, 0, 0)[1]
    local at = tonumber(redis.call('ZSCORE', q.e, id) or 0)
    local r = parse(redis.call('HGET', q.h, id))
    if not r or at <= q.now then
      drop(q, id)
    else
      if taken(q) + r.permits > q.c then return end
      redis.call('ZREM', q.w, id)
      q.waiting = q.waiting - 1
      r.since = q.us
      if q.c == 1 and r.permits == 1 then
        redis.call('HDEL', q.h, id)
        redis.call('ZREM', q.e, id)
        hold(q, id, r, at - q.now) -- what is left of its place, never a whole ttl: it may be dead
      else
        admit(q, id, r, at)
      end
      tell(q, r.channel, id, r.token)
    end
  end
end

local function open(k, h, w, e, mine)
  local t = redis.call('TIME')
  local q = {k = k, h = h, w = w, e = e, mine = mine, told = {}, latest = 0, counted = false, fresh = false}
  q.us = t[1] .. string.format('%06d', t[2])
  q.now = t[1] * 1000 + math.floor(t[2] / 1000)
  q.held = redis.call('GET', k)
  if redis.call('EXISTS', e) == 0 then redis.call('DEL', h, w) end -- the server evicted a part: nothing stands
  local f = redis.call('HMGET', h, '#c', '#n', '#a', '#u')
  q.c, q.n, q.a, q.expires = tonumber(f[1] or 0), tonumber(f[2] or 0), tonumber(f[3] or 0), tonumber(f[4] or 0)
  q.waiting = redis.call('ZCARD', w)
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', e, '-inf', q.now, 'LIMIT', 0, 1000)) do drop(q, id) end
  settle(q)
  return q
end

local function save(q) -- at the end of every script that opened a queue
  if redis.call('EXISTS', q.e) == 0 then
    redis.call('DEL', q.h, q.w)
    return
  end
  if q.counted then redis.call('HSET', q.h, '#c', q.c, '#n', q.n, '#a', q.a) end
  if q.latest > q.expires or q.fresh then
    q.expires = math.max(q.expires, q.latest + SLACK)
    redis.call('HSET', q.h, '#u', q.expires)
    for _, key in ipairs({q.h, q.w, q.e}) do redis.call('PEXPIREAT', key, q.expires) end
  end
end

local function standing(q) -- the capacity live claims stand under, or nil
  if q.n + q.waiting > 0 then return q.c end
  if q.held then return 1 end
end

local function retry(q, rank) -- ms until what a waiter at this rank watches lapses by itself
  if rank > 0 then
    local ahead = redis.call('ZRANGE', q.w, rank - 1, rank - 1)[1]
    return math.max(1, tonumber(redis.call('ZSCORE', q.e, ahead) or 0) - q.now)
  end
  if q.c == 1 then
    local left = redis.call('PTTL', q.k)
    local _, r = split(q.held or '')
    if not r and (left < 0 or left > FOREIGN) then return FOREIGN end
    return math.max(1, left)
  end
  local first = redis.call('ZRANGE', q.e, 0, 0, 'WITHSCORES')[2]
  return math.max(1, tonumber(first or 0) - q.now)
end

local function is(q, id) -- whether this claim stands in the holder's key
  return q.held and string.sub(q.held, 1, #id + 1) == id .. '\n'
end
