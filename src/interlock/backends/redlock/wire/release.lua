-- Remove a claim from this node, whether or not it has a vote.
--
-- KEYS  1 holder  2 waiters, which are those of `redis://`: claims of a quorum do not queue  and, unless it is simply
--       removed: 3 quorum, see seat.lua
-- ARGV  1 id  and, unless it is simply removed: 2 linger ms (0: none)  3 the ballot of a failed attempt: a claim with a
--       later ballot stays ('' none does)
--
-- Returns  1 or 0    whether it stood
--          an error  the server refuses to hand over to a waiter of `redis://`; the claim stands

local id, held = ARGV[1], redis.call('GET', KEYS[1])
local ours = held and string.sub(held, 1, #id + 1) == id .. '\n'
if ours and not ARGV[2] and redis.call('EXISTS', KEYS[2]) == 0 then -- the fast path: nobody waits for it here
  redis.call('DEL', KEYS[1])
  return 1
end

-- apart

local function release(KEYS, ARGV)
-- include release.lua
end

local stem = string.sub(KEYS[2], 1, -2)
local records = stem .. 'h'

local function token() -- the token with which the claim stands here; nil if it does not
  if ours then return tonumber(string.match(held, '^(%d+)\n', #id + 2)) end
  return tonumber(string.match(redis.call('HGET', records, id) or '', '^(%d+)\n'))
end

local linger, upto = ARGV[2] or '0', ARGV[3] or ''
if linger ~= '0' and token() == 0 then linger = '0' end -- without a number of its own it cannot linger: two such claims would be one
-- A late release of an attempt that failed must not end the attempt that followed it.
if upto ~= '' and (token() or 0) > tonumber(upto) then return 0 end
-- What lingers counts like a ttl: a node that lost its memory must not vote before it is over. The first write needs no
-- memory, so a full server lets the script run on; see `ready` in queue.lua.
if linger ~= '0' and token() and tonumber(linger) > -tonumber(redis.call('ZSCORE', KEYS[3], 'longest') or 0) then
  redis.call('ZREM', KEYS[3], '')
  redis.call('ZADD', KEYS[3], '-' .. linger, 'longest')
end
local stood = release({KEYS[1], records, KEYS[2], stem .. 'e'}, {id, '', linger})
if type(stood) == 'table' and stood.err then return stood end -- refused, and nothing was done
return type(stood) == 'table' and stood[1] or stood
