-- Removes a claim, holder or waiter, and hands the resource straight to the next waiter.
--
-- KEYS  1 holder  2 records  3 waiters  4 lapses
-- ARGV  1 id  2 the caller's channel
--       and, if there is more to say: 3 linger ms (0: leave at once)  4 the token of its place in the queue ('0' none)
--       5 1: a request for this claim may still be under way, and must not enter when it arrives
--
-- Returns  0 or 1                    whether the claim was there
--          {0 or 1, id, token, ...}  and the claims of the caller's channel that were admitted (token 0: ask again); an
--                                    empty id: others could not be told, since the server refuses to publish

local id, mine, linger = ARGV[1], ARGV[2], tonumber(ARGV[3] or 0)
local held = redis.call('GET', KEYS[1])
local ours = held and string.sub(held, 1, #id + 1) == id .. '\n'
local quick = ours and linger == 0 and not ARGV[5]
local head = quick and redis.call('ZRANGE', KEYS[3], '0', '0')[1]
if quick and not head and string.find(held, mine, 1, true) then -- the quick path: nobody waits
  redis.call('DEL', KEYS[1])
  return 1
end

-- apart

-- include publish.lua
-- include clock.lua

local function removed() -- another client's claim was removed: those who wait for its removal must learn
  if not string.find(held, mine, 1, true) then
    publish(string.match(held, '^[^\n]*\n%d+\n%d+\n%d+\n%d+\n([^\n]*)'), id .. ' 0')
  end
end

if quick and not head then
  redis.call('DEL', KEYS[1])
  removed()
  return muted and {1, '', '0'} or 1
end

if quick then -- the usual path: the first waiter is alive and takes over
  local next, token, ttl, tail, channel = string.match(head, '^([^\n]*)\n(%d+)\n%d+\n(%d+)\n1\n(([^\n]*)\n.*)$')
  local lapse = next and redis.call('ZSCORE', KEYS[3], next)
  local us = clock()
  local left = (lapse or 0) - lapse_now(us)
  if left > 0 and left <= 60000 then
    local value = next .. '\n' .. token .. '\n' .. us .. '\n' .. ttl .. '\n1\n' .. tail
    redis.call('ZREM', KEYS[3], head, next) -- first, because it needs no memory, which a full server would refuse
    local set = redis.pcall('SET', KEYS[1], value, 'PX', left) -- not for a whole ttl: it may be dead
    if set.err then
      redis.pcall('ZADD', KEYS[3], lapse, next, token, head)
      return set
    end
    removed()
    if channel == mine then return muted and {1, next, token, '', '0'} or {1, next, token} end
    publish(channel, next .. ' ' .. token)
    return muted and {1, '', '0'} or 1
  end
end

-- include queue.lua

local q = open(KEYS[1], KEYS[2], KEYS[3], KEYS[4], mine)
q.hint = ARGV[4]
local stood = 0

local function gone(r)
  stood = 1
  if r.channel ~= mine then tell(q, r.channel, id, '0') end
end

local function left_holder(r)
  ready(q)
  if linger > 0 then
    hold(q, 'lingering-' .. r.token, r, linger)
    look(q, head_of(q, 0)) -- it knows a later lapse than the new one
  else
    redis.call('DEL', q.k)
    q.held = false
  end
end

local function left_sharer(r)
  unshare(q, {id})
  if linger > 0 then
    share(q, {{id = 'lingering-' .. r.token, r = r, at = q.now + linger}})
    look(q, head_of(q, 0))
  end
end

local function left_queue(at)
  local first = head_of(q, 0)
  local member = find(q, id)
  leave(q, id, member, at > q.now)
  if member and at > q.now then gone(select(2, split(member))) end
  -- Only the first waiter polls another program's key, and now the next one is the first.
  if first == id and q.held and not select(2, split(q.held)) then look(q, head_of(q, 0)) end
end

if is(q, id) then
  local _, r = split(q.held)
  gone(r)
  left_holder(r)
else
  local r, at = parse(redis.call('HGET', q.h, id)), tonumber(redis.call('ZSCORE', q.w, id) or 0)
  if r then
    gone(r)
    left_sharer(r)
  elseif at > 0 then
    left_queue(at)
  end
end
settle(q)
if ARGV[5] then mark(q, id, '-', q.now + REMEMBERED) end
save(q)
if #q.told == 0 then return stood end
local reply = {stood}
for _, part in ipairs(q.told) do reply[#reply + 1] = part end
return reply
