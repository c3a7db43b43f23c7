-- journal_sent: for the twin of send: record what is sent, or stop it while nothing is written.
--
-- KEYS  none
-- ARGV  rest  …  those of send
-- REPLY none

-- The first command that writes: when each message becomes visible, and its id.
watch.ZADD = function(command, messages, ...)
  claim_room()
  local reply, scored = made.call(command, messages, ...), {...}
  for i = 5, #ARGV, 2 do
    local delay_ms, id, body = scored[i - 4] - opened.now, scored[i - 3], ARGV[i + 1]
    if delay_ms > 0 then
      enter(opened, #body, 'e', 'sent', 'id', id, 'ts', opened.now, 'delay_ms', delay_ms, 'd', body)
    else
      enter(opened, #body, 'e', 'sent', 'id', id, 'ts', opened.now, 'd', body)
    end
  end
  return reply
end
