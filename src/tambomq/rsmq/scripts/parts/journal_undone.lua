-- journal_undone: for the twin of redrive_undo: tell who is dead again, and why.
--
-- KEYS  messages       as in redrive_undo
--       data           as there
--       dead_messages  as there
--       dead_data      as there
-- ARGV  none
-- REPLY none

local messages, data, dead_messages, dead_data = KEYS[1], KEYS[2], KEYS[3], KEYS[4]

watch.ZREM = function(command, key, id)
  local reply = made.call(command, key, id)
  local why = made.call('HGET', dead_data, id .. ':why') or ''
  -- The traceback, which may follow, stays with the letter.
  local reason = why:sub(1, (why:find('\n--- traceback ---\n', 1, true) or 0) - 1)
  tell(#reason, 'dead', id, 'r', reason)
  return reply
end
