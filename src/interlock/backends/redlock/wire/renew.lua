-- Extend many claims on this node. A claim that does not stand is not entered.
--
-- KEYS  1 quorum, then four for each claim: holder, records, waiters, lapses
-- ARGV  1 run id, then five for each claim: id, ttl ms, permits ('' as it is), note ('' as it is, otherwise =
--       and the note), token ('' whatever it stands with)
--
-- Returns  {us, 1, answer, ...}  1 renewed, 0 gone, 2 stands under another token, a reason: evicted
--          {us, -9, lost}        no vote; 1: this node lost its memory, or has not been admitted yet, 0: it is
--                                another process than before, and it is not known yet whether it lost anything

-- include ../../redlock/wire/seat.lua

local t = redis.call('TIME')
local clock = tonumber(string.format('%d%06d', t[1], t[2]))
local now = 8e15 + t[1] * 1000 + math.floor(t[2] / 1000) -- as lapses are kept: see queue.lua
local seat, run = marks(KEYS[1])
if not seated(seat, ARGV[1]) then return {clock, -9, (run and run ~= ARGV[1]) and 0 or 1} end

local function renew(KEYS, ARGV)
-- include renew.lua
end

local function stray(at, id, token) -- whether it stands with another token than its holder's: then it is a leftover
  local held = redis.call('GET', KEYS[at])
  local start = id .. '\n'
  local found
  if held and string.sub(held, 1, #start) == start then
    found = string.match(held, '^(%d+)\n', #start + 1)
  elseif tonumber(redis.call('ZSCORE', KEYS[at + 3], id) or 0) > now then
    found = string.match(redis.call('HGET', KEYS[at + 1], id) or '', '^(%d+)\n')
  end
  return found and found ~= token
end

local keys, args, places, answers, longest = {}, {''}, {}, {clock, 1}, 0
for i = 0, (#KEYS - 1) / 4 - 1 do
  local k, a = 2 + 4 * i, 2 + 5 * i
  if ARGV[a + 4] ~= '' and stray(k, ARGV[a], ARGV[a + 4]) then
    answers[3 + i] = 2
  else
    for n = 0, 3 do
      keys[#keys + 1] = KEYS[k + n]
      args[#args + 1] = ARGV[a + n]
    end
    places[#places + 1] = 3 + i
  end
  longest = math.max(longest, tonumber(ARGV[a + 1]))
end
local inner = renew(keys, args)
if inner.err then return inner end
for n, place in ipairs(places) do answers[place] = inner[n] end
if longest > -tonumber(redis.call('ZSCORE', KEYS[1], 'longest') or 0) then -- only then: a full server refuses it
  redis.call('ZADD', KEYS[1], string.format('%.0f', -longest), 'longest')
end
return answers
