-- Remove a claim from this node, whether or not it has a vote; now and then forget an old number.
--
-- KEYS  1 holder  2 records  3 waiters  4 lapses  5 quorum
-- ARGV  1 id  2 linger ms (0: leave at once)  3 a failed attempt's ballot: a later one's claim stays ('' any)
--
-- Returns  {us, 0 or 1}  whether it stood

local MANY = 512 -- fields that may stay for good
local OLD = 60e6 -- us after which a number is forgotten into the floor: no attempt lasts that long

local t = redis.call('TIME')
local clock = t[1] * 1000000 + t[2]

if t[2] % 8 == 0 and redis.call('HLEN', KEYS[5]) > MANY then
  local f = redis.call('HMGET', KEYS[5], 'cursor', 'floor')
  local floor, old = tonumber(f[2] or 0), {}
  local step = redis.call('HSCAN', KEYS[5], f[1] or '0', 'MATCH', '=*', 'COUNT', 32)
  for i = 1, #step[2], 2 do
    local number = tonumber(string.match(step[2][i + 1], '^%d+'))
    if number < clock - OLD then
      old[#old + 1] = step[2][i]
      if number > floor then floor = number end
    end
    if #old == 100 then break end
  end
  if #old > 0 then redis.call('HDEL', KEYS[5], unpack(old)) end
  redis.call('HSET', KEYS[5], 'cursor', step[1], 'floor', string.format('%.0f', floor))
end

local start, held = ARGV[1] .. '\n', redis.call('GET', KEYS[1])
local ours = held and string.sub(held, 1, #start) == start
if ours and ARGV[2] == '0' and ARGV[3] == '' and redis.call('EXISTS', KEYS[2]) == 0 then -- the quick way: nobody is beside us
  redis.call('DEL', KEYS[1])
  return {clock, 1}
end

local function release(KEYS, ARGV)
-- include release.lua
end

local function token() -- with which it stands here; nil if it does not
  if ours then return tonumber(string.match(held, '^(%d+)\n', #start + 1)) end
  return tonumber(string.match(redis.call('HGET', KEYS[2], ARGV[1]) or '', '^(%d+)\n'))
end

local linger = ARGV[2]
if linger ~= '0' and token() == 0 then linger = '0' end -- no number of its own here: two such would be one
-- A late word of an attempt that failed must not end the one that followed it.
if ARGV[3] ~= '' and (token() or 0) > tonumber(ARGV[3]) then return {clock, 0} end
local stood = release(KEYS, {ARGV[1], linger, ''})
return {clock, type(stood) == 'table' and stood[1] or stood}
