-- journal_appended: for the twins of sink_push and move_put: record what is appended.
--
-- KEYS  queue  list  QUEUE_<key>; the script's others follow
-- ARGV  none
-- REPLY none

local queue, place = KEYS[1], 0

-- Of each message, in their order: its id and its payload. Nothing is written before.
watch.RPUSH = function(command, _, ...)
  claim_room()
  local reply = made.call(command, queue, ...)
  for _ = 1, select('#', ...) do
    local id, payload = extra[place + 1], extra[place + 2]
    enter(opened, #payload, 'e', 'sent', 'id', id, 'ts', opened.now, 'd', payload)
    place = place + 2
  end
  return reply
end
