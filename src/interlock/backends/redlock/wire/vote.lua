-- Enter a claim on this node if no other claim is in its way, and accept its ballot as the resource's number.
--
-- KEYS  1 holder  2 records  3 quorum (see seat.lua)
-- ARGV  1 id  2 ttl ms  3 ballot  4 the record's end: channel \n bytes of note \n note who  5 the node's seat, if the
--       caller knows that it remembers a ttl as long as this one; otherwise its run id
--       and, if it is not a new claim of 1 permit out of 1: 6 permits  7 capacity  8 1: a majority holds it already
--
-- Returns  us                it stands here and the ballot was accepted; us is this node's clock, as digits
--          us :us            the same, and the end of the node's seat, which the caller did not name
--          {us, 2, number}   it stands here, but this number was accepted before: the ballot is too low
--          {us, 0, ahead, ms, holder}  others are in its way, nothing changed; claim again after so many ms; the oldest
--                            holder's id and record, '' if that is another program
--          {us, -1, reason}  evicted by an operator
--          {us, -2, capacity}  live claims stand under another capacity
--          {us, -9}          no vote: this node lost its memory, or has not been admitted yet

local holder, quorum, id, ttl, ballot, seat = KEYS[1], KEYS[3], ARGV[1], ARGV[2], ARGV[3], ARGV[5]
local t = redis.call('TIME')
local us = t[1] .. (#t[2] == 6 and t[2] or string.sub('00000' .. t[2], -6))
local field = '=' .. seat .. holder
local free = redis.call('EXISTS', holder, KEYS[2]) == 0 -- asked in any case: a user without this right could not release the claim

-- The usual vote: no claim stands here, and the name has a lower number. That there is one, under the name of the seat, says
-- that this process has its vote and kept its memory since the caller learnt the seat; and so that it remembers the ttl, too.
-- XX: a node that forgot makes no number. Every call here costs time on each of five servers for each lock.
local entered = free and #seat > 40 and not ARGV[6] and redis.call('ZADD', quorum, 'XX', 'GT', 'CH', ballot, field) == 1
if entered then
  redis.call('SET', holder, id .. '\n' .. ballot .. '\n' .. us .. '\n' .. ttl .. '\n1\n' .. ARGV[4], 'PX', ttl)
  if ballot % 64 > 0 then return us end
end

-- apart

local MANY = 512 -- members of the quorum's set that are kept however old they are
local OLD = 60e6 -- us after which a number may be merged into the floor: no attempt lasts that long
local clock = tonumber(us)

local function merge(lowest, highest) -- some of these numbers become one, the floor; return whether there was one
  local found, gone = redis.call('ZRANGEBYSCORE', quorum, lowest, highest, 'WITHSCORES', 'LIMIT', 0, 100), {}
  for i = 1, #found, 2 do
    if found[i] ~= 'floor' then gone[#gone + 1] = found[i] end
  end
  if #gone > 0 then
    redis.call('ZADD', quorum, 'GT', found[#found], 'floor') -- GT: it may be above them
    redis.call('ZREM', quorum, unpack(gone))
  end
  return #gone > 0
end

if ballot % 8 == 0 and redis.call('ZCARD', quorum) > MANY then -- now and then some old numbers are merged
  -- If the clock of one client was ahead, the numbers that others give from then on are, too, and never become old.
  local ahead = string.format('%.0f', clock + OLD)
  if not merge('(0', string.format('%.0f', clock - OLD)) and redis.call('ZCOUNT', quorum, ahead, '+inf') > MANY then
    merge(ahead, '+inf')
  end
end
if entered then return us end

-- The first vote for a name, which has no number, or had none for long. Numbers of equal length are compared as strings.
local f = redis.call('ZMSCORE', quorum, seat, 'longest', field, 'floor')
local longest, last = f[2], f[3] or f[4]
if free and f[1] and not ARGV[6] and (not last or (#last == #ballot and ballot > last))
  and longest and -longest >= tonumber(ttl) then
  redis.call('SET', holder, id .. '\n' .. ballot .. '\n' .. us .. '\n' .. ttl .. '\n1\n' .. ARGV[4], 'PX', ttl)
  redis.call('ZADD', quorum, ballot, field)
  return us
end

-- include ../../redlock/wire/seat.lua

local learnt = '' -- the end of the seat, if the caller did not name it
if not f[1] then
  local run = string.match(seat, '^[^:]*')
  seat = marks(quorum)
  if not seated(seat, run) then return {clock, -9} end
  field, learnt = '=' .. seat .. holder, ' ' .. string.sub(seat, #run + 1)
end

local stem = string.sub(KEYS[2], 1, -2)
local held = not ARGV[6] and redis.call('GET', holder)
if held and string.sub(held, 1, #id + 1) ~= id .. '\n' and redis.call('EXISTS', KEYS[2], stem .. 'w') == 0 then
  -- The fast path of waiters that poll: one holder, and no other claim beside it.
  local left, lasts = redis.call('PTTL', holder), string.match(held, '^[^\n]*\n%d+\n%d+\n(%d+)\n1\n')
  if lasts and left > 0 and left <= 4 * lasts + 60000 then return {clock, 0, 1, left, held} end
end

local known = redis.call('ZMSCORE', quorum, field, 'floor') -- again: the seat may be another, and the floor has perhaps risen
local proposed, number = tonumber(ballot), math.max(tonumber(known[1] or 0), tonumber(known[2] or 0))
local accepted = proposed > number
local own = accepted or ARGV[8] == '1' -- a claim that is filled in was granted by a majority under this number

local function standing_here() -- the claim stands: record what the quorum must remember of it
  if accepted then redis.call('ZADD', quorum, ballot, field) end
  if tonumber(ttl) > -(longest or 0) then redis.call('ZADD', quorum, '-' .. ttl, 'longest') end
  if own then return us .. learnt end
  return {clock, 2, number}
end

-- include queue.lua

local permits, capacity = tonumber(ARGV[6] or 1), tonumber(ARGV[7] or 1)
local q = open(holder, KEYS[2], stem .. 'w', stem .. 'e', '')

local function answer(reply)
  save(q)
  return reply
end

local mark = redis.call('HGET', q.h, '!' .. id)
if mark then return answer({clock, -1, string.sub(mark, 2)}) end

local under = standing(q)
if under and under ~= capacity then return answer({clock, -2, under}) end

-- A fill that comes late may meet a later claim of the same id, which keeps its number.
local function renumbered(token) return own and proposed > tonumber(token) and ballot or token end

if is(q, id) then
  local _, r = split(q.held)
  r.token = renumbered(r.token)
  hold(q, id, r, math.max(tonumber(ttl), redis.call('PTTL', q.k)))
  return answer(standing_here())
end
local r = parse(redis.call('HGET', q.h, id))
if r then
  r.token = renumbered(r.token)
  redis.call('ZADD', q.e, r.token, '@' .. id)
  decide(q, {id, pack(r)})
  stretch(q, id, q.now + ttl)
  return answer(standing_here())
end

q.c = capacity
if q.waiting > 0 or taken(q) + permits > capacity then
  local inside = q.n + ((q.held and capacity == 1) and 1 or 0)
  return answer({clock, 0, inside + q.waiting, retry(q, q.waiting), oldest(q)})
end
r = parse(table.concat({own and ballot or '0', q.us, ttl, permits, ARGV[4]}, '\n'))
admit(q, id, r, q.now + ttl)
return answer(standing_here())
