-- Moves the lapses of many claims; never an upsert. At most 100 in one call: more would block the server.
--
-- KEYS  four for each claim: holder, records, waiters, lapses
-- ARGV  1 the caller's channel, then four for each claim: id, ttl ms, permits ('' as it is),
--       note ('' as it is, otherwise = and the note)
--
-- Returns  {answer, ..., {id, token, ...}}: 1 renewed, it holds; 3 renewed, it waits, and only that; 0 gone; a reason: evicted; an
--          error: refused, though the others were renewed; last, the claims of the caller's channel that were admitted
--          because a claim shrank

local told = {}

-- include queue.lua

local function noted(r, note)
  local who = string.sub(r.tail, r.length + 1)
  r.length = #note
  r.tail = note .. who
end

local function changed_holder(q, id, permits, note)
  local _, r = split(q.held)
  if note then
    noted(r, note)
    ready(q)
    q.held = id .. '\n' .. pack(r)
    redis.call('SET', q.k, q.held, 'KEEPTTL')
  end
  if permits and permits < r.permits then -- a claim of no permits excludes nobody, so it becomes a sharer
    local left = redis.call('PTTL', q.k)
    ready(q)
    redis.call('DEL', q.k)
    q.held, q.c, r.permits = false, 1, permits
    share(q, {{id = id, r = r, at = q.now + left}})
  end
end

local function changed_sharer(q, id, r, permits, note)
  if note then noted(r, note) end
  if permits and permits < r.permits then
    q.a = q.a - r.permits + permits
    r.permits = permits
  end
  ready(q)
  decide(q, {id, pack(r)})
end

local function changed(at, id, permits, note)
  local q = open(KEYS[at], KEYS[at + 1], KEYS[at + 2], KEYS[at + 3], ARGV[1])
  permits, note = tonumber(permits), note ~= '' and string.sub(note, 2)
  local r = parse(redis.call('HGET', q.h, id))
  if is(q, id) then
    changed_holder(q, id, permits, note)
  elseif r then
    changed_sharer(q, id, r, permits, note)
  end
  settle(q)
  save(q)
  for _, part in ipairs(q.told) do told[#told + 1] = part end
end

local t = redis.call('TIME')
local now = LAPSES + t[1] * 1000 + math.floor(t[2] / 1000)

local function value_of(key) -- a key of another type is not ours, and must not make the renewals of others fail
  local value = redis.pcall('GET', key)
  if type(value) ~= 'table' then return value end
  if not string.find(value.err, 'WRONGTYPE', 1, true) then error(value.err, 0) end
end

-- Write without changing anything. With replicas=, a renewal counts if replicas confirm it, and from Redis 7.2 on a new
-- connection that has written nothing is told that all of them do, though an earlier renewal may have reached none.
local function touch(key)
  local left = redis.call('PTTL', key)
  if left > 0 then redis.call('PEXPIRE', key, left) end
end

local function renewed(at, id, ttl)
  local k, h, w, e = KEYS[at], KEYS[at + 1], KEYS[at + 2], KEYS[at + 3]
  local held = value_of(k)
  if held and string.sub(held, 1, #id + 1) == id .. '\n' then
    local left = redis.call('PTTL', k)
    -- Also if that changes nothing: WAIT counts only what its own connection has written, see touch().
    local done = left < 0 or redis.pcall('PEXPIRE', k, string.format('%.0f', math.max(left, ttl)))
    if type(done) == 'table' then error(done.err .. ' (PEXPIRE)', 0) end -- what is refused for one claim has no line: see errors.py
    return 1
  end
  local waits = tonumber(redis.call('ZSCORE', w, id) or 0)
  if waits > now then
    if now + ttl > waits then
      ready({w = w})
      redis.call('ZADD', w, now + ttl, id)
      keep(w, ttl)
    end
    return 3
  end
  local f = redis.call('HMGET', h, id, '!' .. id, '#u')
  local shares = parse(f[1]) and tonumber(redis.call('ZSCORE', e, id) or 0) or 0 -- in both, or the server evicted one key
  if shares > now then
    if now + ttl > shares then
      local q = {h = h, e = e, w = w, expires = tonumber(f[3] or 0)}
      ready(q)
      redis.call('ZADD', e, now + ttl, id)
      outlive(q, now + ttl)
    else
      touch(e)
    end
    return 1
  end
  return f[2] and string.sub(f[2], 1, 1) == '=' and string.sub(f[2], 2) or 0
end

local function asked(i)
  local a = 2 + 4 * i
  local id, permits, note = ARGV[a], ARGV[a + 2], ARGV[a + 3]
  local answer = renewed(1 + 4 * i, id, tonumber(ARGV[a + 1]))
  if answer == 1 and (permits ~= '' or note ~= '') then -- only of a holder: a place in the queue is never changed
    changed(1 + 4 * i, id, permits, note)
  end
  return answer
end

local answers, refused = {}, 0
for i = 0, #KEYS / 4 - 1 do
  local done, answer = pcall(asked, i)
  if not done then
    answer = {err = type(answer) == 'table' and answer.err or tostring(answer)}
    refused = refused + 1
  end
  answers[i + 1] = answer
end
if refused > 0 and refused == #answers then return answers[1] end
answers[#answers + 1] = told
return answers
