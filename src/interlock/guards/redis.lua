-- Runs a command or a script under the token of a lease.
-- KEYS[1]: the highest token that was accepted; the others belong to the body. ARGV[1]: the token; ARGV[2]: for how many
-- milliseconds it is remembered, '' for ever; the others belong to the body.
-- Returns {1, the reply of the body}; or runs nothing: {0, the higher token}, or {2} if the key holds no token.
-- Whoever sends it must not send it twice: the body would run twice.
local function guarded(KEYS, ARGV)
--BODY--
end
local token, seen = ARGV[1], redis.pcall('get', KEYS[1])
if type(seen) == 'table' then
  return string.find(seen.err, 'WRONGTYPE', 1, true) and {2} or seen
end
if seen and not string.find(seen, '^%d+$') then return {2} end
-- As decimal digits, not as numbers: a token of ZooKeeper may have more bits than a number of Lua keeps.
if seen and (#seen > #token or (#seen == #token and seen > token)) then
  return {0, seen}
end
if ARGV[2] == '' then
  redis.call('set', KEYS[1], token)
else
  redis.call('set', KEYS[1], token, 'px', ARGV[2])
end
local keys, arguments = {}, {}
for place = 2, #KEYS do keys[place - 1] = KEYS[place] end
for place = 3, #ARGV do arguments[place - 2] = ARGV[place] end
return {1, guarded(keys, arguments)}
