-- Remove a claim, holder or waiter, and hand the resource straight to whoever comes next.
--
-- KEYS  1 holder  2 records  3 waiters  4 lapses
-- ARGV  1 id  2 linger ms (0: leave at once)  3 the caller's channel
--
-- Returns  0 or 1                    whether it stood
--          {0 or 1, id, token, ...}  and who of the caller's channel was let in (token 0: should look again)

local id, linger, mine = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local held = redis.call('GET', KEYS[1])
local ours = held and string.sub(held, 1, #id + 1) == id .. '\n'
if not ours and redis.call('EXISTS', KEYS[2]) == 0 then return 0 end

local head = ours and linger == 0 and redis.call('ZRANGE', KEYS[3], 0, 0)[1]
if ours and linger == 0 and not head and string.find(held, mine, 1, true) then -- the quick way: nobody waits
  redis.call('DEL', KEYS[1])
  return 1
end

-- include publish.lua

local function told() -- another's claim was removed: whoever waits on it must learn
  if not string.find(held, mine, 1, true) then
    publish(string.match(held, '^[^\n]*\n%d+\n%d+\n%d+\n%d+\n([^\n]*)'), id .. ' 0')
  end
  return 1
end

if ours and linger == 0 then
  if not head then
    redis.call('DEL', KEYS[1])
    return told()
  end
  -- The usual way: the first who waits is alive, and takes over.
  local f = redis.call('HMGET', KEYS[2], head, '#c')
  local token, ttl, tail, channel = string.match(f[1] or '', '^(%d+)\n%d+\n(%d+)\n1\n(([^\n]*)\n.*)$')
  local next = redis.call('ZRANGE', KEYS[4], 0, 1, 'WITHSCORES') -- who lapses first, and whether anybody else stands
  local lapse = next[1] == head and next[2] or redis.call('ZSCORE', KEYS[4], head)
  local t = redis.call('TIME')
  local left = tonumber(lapse or 0) - t[1] * 1000 - math.floor(t[2] / 1000)
  if token and left > 0 and f[2] == '1' then
    local value = head .. '\n' .. token .. '\n' .. string.format('%d%06d', t[1], t[2]) .. '\n' .. ttl .. '\n1\n' .. tail
    redis.call('SET', KEYS[1], value, 'PX', left) -- what is left of its place, never a whole ttl: it may be dead
    if #next == 2 then
      redis.call('DEL', KEYS[2], KEYS[3], KEYS[4])
    else
      redis.call('ZREM', KEYS[3], head)
      redis.call('ZREM', KEYS[4], head)
      redis.call('HDEL', KEYS[2], head)
    end
    told()
    if channel == mine then return {1, head, token} end
    publish(channel, head .. ' ' .. token)
    return 1
  end
end

-- include queue.lua

local q = open(KEYS[1], KEYS[2], KEYS[3], KEYS[4], mine)
local stood = 0

local function gone(r)
  stood = 1
  if r.channel ~= mine then tell(q, r.channel, id, '0') end
end

local function nearer() -- the head was told a lapse that is nearer now
  local head = redis.call('ZRANGE', q.w, 0, 0)[1]
  local r = head and parse(redis.call('HGET', q.h, head))
  if r then tell(q, r.channel, head, '0') end
end

if is(q, id) then
  local _, r = split(q.held)
  gone(r)
  if linger > 0 then
    hold(q, 'lingering-' .. r.token, r, linger)
    nearer()
  else
    redis.call('DEL', q.k)
    q.held = false
  end
else
  local r = parse(redis.call('HGET', q.h, id))
  if r then
    gone(r)
    local waits = redis.call('ZSCORE', q.w, id)
    drop(q, id)
    if linger > 0 and not waits then
      admit(q, 'lingering-' .. r.token, r, q.now + linger)
      nearer()
    end
  end
end
settle(q)
save(q)
if #q.told == 0 then return stood end
return {stood, unpack(q.told)}
