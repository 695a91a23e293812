-- The server's clock, as digits. Digits are cheaper than numbers: a number that goes to a command is formatted each time.

local function clock() -- in us
  local t = redis.call('TIME')
  return t[1] .. string.sub('00000' .. t[2], -6)
end

local function lapse_now(us) -- the same instant as lapses are stored, in ms plus 8e15: see queue.lua
  return '800' .. string.sub(us, 1, -4)
end
