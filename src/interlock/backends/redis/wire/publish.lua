-- Publishes a message. A channel that begins with a capital S is a sharded one, in the slot of the script's keys.
--
-- The user may lack the right to publish, or the server may lack the command. A script that failed here would be half
-- done, so it goes on and reports this to its caller: see `muted`. Waiters that nobody wakes poll.

local muted = false

local function publish(channel, message, command)
  command = command or string.byte(channel) == 83 and 'SPUBLISH' or 'PUBLISH'
  if type(redis.pcall(command, channel, message)) == 'table' then muted = true end
end
