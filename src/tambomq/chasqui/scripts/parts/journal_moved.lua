-- journal_moved: for the twin of move_put: record each job that comes, of whichever form it is.
--
-- KEYS  none
-- ARGV  none
-- REPLY none

local delayed, stream = table.remove(KEYS), table.remove(KEYS)
local place = 0

-- Of each job, in their order: its id, its name and its payload.
local function come(is_new, ...)
  local id, name, payload = unpack(extra, place + 1, place + 3)
  place = place + 3
  if is_new then
    sent(id, name, payload, ...)
  end
end

watch.XADD = function(command, key, ...)
  if key ~= stream then
    return made.call(command, key, ...)
  end
  claim_room()
  local reply = made.call(command, key, ...)
  come(true)
  return reply
end

watch.ZADD = function(command, key, run_at, member)
  claim_room()
  local reply = made.call(command, key, run_at, member)
  come(reply == 1, 'delay_ms', math.max(0, run_at - opened.now))
  return reply
end
