-- Push the lapse of many claims away; never an upsert. At most 100 in one call: more would hold the server up.
--
-- KEYS  four for each claim: holder, records, waiters, lapses
-- ARGV  1 the caller's channel, then four for each claim: id, ttl ms, permits ('' as it is),
--       note ('' as it is, otherwise = and the note)
--
-- Returns  {answer, ..., {id, token, ...}}: 1 renewed, 0 gone, a reason: evicted; last, who of the caller's
--          channel was let in by a claim that shrank

local told = {}

-- include queue.lua

local function noted(r, note)
  local who = string.sub(r.tail, r.length + 1)
  r.length = #note
  r.tail = note .. who
end

local function shrunk(q, id, r, permits)
  if is(q, id) then -- a claim of no permits does not keep others out: it moves to the companions
    local left = redis.call('PTTL', q.k)
    redis.call('DEL', q.k)
    q.held = false
    q.c = 1
    r.permits = permits
    admit(q, id, r, q.now + left)
  else
    if not redis.call('ZSCORE', q.w, id) then
      q.a = q.a - r.permits + permits
      q.counted = true
    end
    r.permits = permits
    redis.call('HSET', q.h, id, pack(r))
  end
  settle(q)
end

local function changed(at, id, permits, note)
  local q = open(KEYS[at], KEYS[at + 1], KEYS[at + 2], KEYS[at + 3], ARGV[1])
  local r
  if is(q, id) then r = select(2, split(q.held)) else r = parse(redis.call('HGET', q.h, id)) end
  if r and note ~= '' then
    noted(r, string.sub(note, 2))
    if is(q, id) then
      q.held = id .. '\n' .. pack(r)
      redis.call('SET', q.k, q.held, 'KEEPTTL')
    else
      redis.call('HSET', q.h, id, pack(r))
    end
  end
  if r and permits ~= '' and tonumber(permits) < r.permits then shrunk(q, id, r, tonumber(permits)) end
  save(q)
  for _, part in ipairs(q.told) do told[#told + 1] = part end
end

local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)

local function renewed(at, id, ttl)
  local held = redis.call('GET', KEYS[at])
  if held and string.sub(held, 1, #id + 1) == id .. '\n' then
    local left = redis.call('PTTL', KEYS[at])
    if left >= 0 and left < ttl then redis.call('PEXPIRE', KEYS[at], string.format('%.0f', ttl)) end
    return 1
  end
  local h, e = KEYS[at + 1], KEYS[at + 3]
  local found = redis.call('HMGET', h, id, '!' .. id)
  local field = (found[1] and id) or (found[2] and '!' .. id)
  local lapses = field and tonumber(redis.call('ZSCORE', e, field) or 0) or 0
  if lapses <= now then return 0 end
  if not found[1] then return found[2] end
  if now + ttl > lapses then
    redis.call('ZADD', e, now + ttl, id)
    local expires = tonumber(redis.call('HGET', h, '#u') or 0)
    if now + ttl > expires then
      expires = now + ttl + SLACK
      redis.call('HSET', h, '#u', expires)
      for key = at + 1, at + 3 do redis.call('PEXPIREAT', KEYS[key], expires) end
    end
  end
  return 1
end

local answers = {}
for i = 0, #KEYS / 4 - 1 do
  local a = 2 + 4 * i
  local id, permits, note = ARGV[a], ARGV[a + 2], ARGV[a + 3]
  local answer = renewed(1 + 4 * i, id, tonumber(ARGV[a + 1]))
  if answer == 1 and (permits ~= '' or note ~= '') then changed(1 + 4 * i, id, permits, note) end
  answers[i + 1] = answer
end
answers[#answers + 1] = told
return answers
