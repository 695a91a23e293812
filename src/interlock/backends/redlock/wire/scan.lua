-- One step over the keys of this node: holders' keys that interlock wrote, or hashes of records.
--
-- KEYS  none: it may see any key
-- ARGV  1 cursor  2 pattern  3 string or hash
--
-- Returns  {us, cursor, {key, ...}}

local t = redis.call('TIME')
local step = redis.call('SCAN', ARGV[1], 'MATCH', ARGV[2], 'COUNT', 500, 'TYPE', ARGV[3])
local keys = {}
for _, key in ipairs(step[2]) do
  if ARGV[3] == 'hash' or string.match(redis.call('GETRANGE', key, 0, 1023), '^[^\n]*\n%d+\n%d+\n%d+\n%d+\n') then
    keys[#keys + 1] = key
  end
end
return {tonumber(string.format('%d%06d', t[1], t[2])), step[1], keys}
