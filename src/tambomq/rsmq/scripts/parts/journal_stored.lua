-- journal_stored: for the twins of sink_send, move_put and redrive_move: record what is stored.
--
-- KEYS  messages  zset  <ns>:<queue>
--       data      hash  <ns>:<queue>:Q
-- ARGV  none
-- REPLY none

local messages, data = KEYS[1], KEYS[2]
local scored

-- All three say first when messages become visible, then what is in them, in the same order.
watch.ZADD = function(command, key, ...)
  if key == messages then
    claim_room()
    scored = {...}
  end
  return made.call(command, key, ...)
end

watch.HSET = function(command, key, ...)
  local reply, fields = made.call(command, key, ...), {...}
  for i = 1, key == data and scored and #scored or 0, 2 do
    local delay_ms, id, body = scored[i] - opened.now, scored[i + 1], fields[i + 1]
    if delay_ms > 0 then
      enter(opened, #body, 'e', 'sent', 'id', id, 'ts', opened.now, 'delay_ms', delay_ms, 'd', body)
    else
      enter(opened, #body, 'e', 'sent', 'id', id, 'ts', opened.now, 'd', body)
    end
  end
  if key == data then
    scored = nil
  end
  return reply
end
