-- Return what this node remembers of the quorum; a node that lost its memory begins its quarantine.
--
-- KEYS  1 quorum, see seat.lua
-- ARGV  1 run id  2 whether every write is on disk before it is answered (0, 1)  3 1: check in, 0: read only
--
-- Returns  {us, run id, since ms, top, longest ms, floor, members, run id now, durable, ready, begun}: what the set says
--          ('' and 0 where it says nothing); run id now and durable are what the caller's connection knows of the server

-- include ../../redlock/wire/seat.lua

local quorum, now_run, durable = KEYS[1], ARGV[1], ARGV[2] == '1'
local t = redis.call('TIME')
local us = t[1] .. string.format('%06d', t[2])

local function top() -- the highest number it accepted, never below the floor
  return tonumber(redis.call('ZREVRANGEBYSCORE', quorum, '+inf', '(0', 'WITHSCORES', 'LIMIT', 0, 1)[2] or 0)
end

local function exact(number) return string.format('%.0f', number) end

local function merge() -- all numbers become one, the floor
  local highest = top()
  if highest == 0 then return end
  redis.call('ZADD', quorum, exact(highest), 'floor')
  repeat
    local gone = {}
    for _, member in ipairs(redis.call('ZRANGEBYSCORE', quorum, '(0', '+inf', 'LIMIT', 0, 1000)) do
      if member ~= 'floor' then gone[#gone + 1] = member end
    end
    if #gone > 0 then redis.call('ZREM', quorum, unpack(gone)) end
  until #gone == 0
end

-- A member too long for a listpack makes Redis store the set as a table and a list with shortcuts: lookups are fast.
local ABOUT = 'what a node of an interlock quorum must not forget, and must forget together: its marker and its numbers'

local seat, run = marks(quorum)
local f = redis.call('ZMSCORE', quorum, 'since', 'longest', 'floor', 'durable')
if ARGV[3] == '1' then
  if run ~= now_run then
    merge() -- the names of the numbers contain the old seat
    if not (run and f[4] and durable) then -- otherwise it restarted without loss: every write was on disk
      f[1] = exact(-math.floor(us / 1000))
      redis.call('ZADD', quorum, f[1], 'since', -0.3, ABOUT)
      redis.call('ZREM', quorum, 'ready') -- it was ready in another life
      if seat or f[3] then redis.call('ZADD', quorum, 0, 'begun') end
    end
    if seat then redis.call('ZREM', quorum, seat) end
    if run then redis.call('ZREM', quorum, 'run ' .. run) end
    redis.call('ZADD', quorum, -0.1, 'run ' .. now_run)
    run, seat = now_run, nil
  end
  if f[1] and -f[1] > us / 1000 then -- its clock was set back: otherwise the quarantine would last until it is that late again
    f[1] = exact(-math.floor(us / 1000))
    redis.call('ZADD', quorum, f[1], 'since')
  end
  if durable and not f[4] then redis.call('ZADD', quorum, 0, 'durable') end
  if f[4] and not durable then redis.call('ZREM', quorum, 'durable') end
  if not f[1] and not seat then redis.call('ZADD', quorum, -0.2, now_run .. ':' .. us) end
end
f = redis.call('ZMSCORE', quorum, 'since', 'longest', 'floor', 'ready', 'begun')
local function count(value) return math.abs(tonumber(value or 0)) end
return {tonumber(us), run or '', count(f[1]), top(), count(f[2]), count(f[3]), redis.call('ZCARD', quorum), now_run,
  durable and 1 or 0, count(f[4]), f[5] and 1 or 0}
