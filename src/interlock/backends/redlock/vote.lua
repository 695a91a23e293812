-- Enter a claim on this node if nobody is in its way, and accept its ballot as the resource's number.
--
-- KEYS  1 holder  2 records  3 waiters  4 lapses  5 quorum (hash)
-- ARGV  1 id  2 ttl ms  3 permits  4 capacity  5 the record's end: channel \n bytes of note \n note who
--       6 the resource's field in the quorum  7 ballot  8 1: fill in what a majority holds already  9 run id
--
-- Returns  {us, 1, ballot}   it stands here and the ballot was accepted; us is this node's clock
--          {us, 2, number}   it stands here, but this number was accepted before: the ballot is too low
--          {us, 0, ahead, ms}  others are in its way, nothing changed; look again after so many ms
--          {us, -1, reason}  evicted by an operator
--          {us, -2, capacity}  live claims stand under another capacity
--          {us, -9}          no vote: this node lost its memory, or has not been admitted yet

local id, ttl, field, ballot, quorum = ARGV[1], ARGV[2], ARGV[6], tonumber(ARGV[7]), KEYS[5]
local t = redis.call('TIME')
local us = string.format('%d%06d', t[1], t[2])
local clock = tonumber(us)
local f = redis.call('HMGET', quorum, 'run', 'since', 'floor', 'top', 'longest', field)
if f[1] ~= ARGV[9] or f[2] then return {clock, -9} end

local number, setter = string.match(f[6] or '', '^(%d+) (.*)$')
number = tonumber(number or 0)
if f[3] and tonumber(f[3]) > number then number, setter = tonumber(f[3]), nil end
local accepted = ballot > number or (ballot == number and setter == id)
local own = accepted or ARGV[8] == '1' -- what is filled in was granted by a majority: its number is its own
local taller, longer = ballot > tonumber(f[4] or 0), tonumber(ttl) > tonumber(f[5] or 0)

if ARGV[3] == '1' and ARGV[4] == '1' and redis.call('EXISTS', KEYS[1], KEYS[2]) == 0 then -- the quick way: nobody is there
  local token = own and ARGV[7] or '0'
  redis.call('SET', KEYS[1], id .. '\n' .. token .. '\n' .. us .. '\n' .. ttl .. '\n1\n' .. ARGV[5], 'PX', ttl)
  if accepted and taller and not longer then
    redis.call('HSET', quorum, field, ARGV[7] .. ' ' .. id, 'top', ARGV[7])
    return {clock, 1, ballot}
  end
end

local function standing_here() -- the claim stands: what the quorum must remember of it
  if accepted then
    redis.call('HSET', quorum, field, ARGV[7] .. ' ' .. id)
    if taller then redis.call('HSET', quorum, 'top', ARGV[7]) end
  end
  if longer then redis.call('HSET', quorum, 'longest', ttl) end
  if own then return {clock, 1, ballot} end
  return {clock, 2, number}
end

-- include queue.lua

local permits, capacity = tonumber(ARGV[3]), tonumber(ARGV[4])
local q = open(KEYS[1], KEYS[2], KEYS[3], KEYS[4], '')

local function answer(reply)
  save(q)
  return reply
end

local reason = redis.call('HGET', q.h, '!' .. id)
if reason then return answer({clock, -1, reason}) end

local under = standing(q)
if under and under ~= capacity then return answer({clock, -2, under}) end

if is(q, id) then
  local _, r = split(q.held)
  if own then r.token = ARGV[7] end
  hold(q, id, r, math.max(tonumber(ttl), redis.call('PTTL', q.k)))
  return answer(standing_here())
end
local r = parse(redis.call('HGET', q.h, id))
if r then
  if own then redis.call('HSET', q.h, id, table.concat({ARGV[7], r.since, r.ttl, r.permits, r.channel, r.length, r.tail}, '\n')) end
  lapse(q, id, q.now + ttl)
  return answer(standing_here())
end

q.c = capacity
if q.waiting > 0 or taken(q) + permits > capacity then
  local inside = q.n + ((q.held and capacity == 1) and 1 or 0)
  return answer({clock, 0, inside + q.waiting, retry(q, q.waiting)})
end
r = parse(table.concat({own and ARGV[7] or '0', q.us, ttl, permits, ARGV[5]}, '\n'))
if capacity == 1 and permits == 1 then hold(q, id, r, ttl) else admit(q, id, r, q.now + ttl) end
return answer(standing_here())
