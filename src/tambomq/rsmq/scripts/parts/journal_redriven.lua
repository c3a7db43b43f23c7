-- journal_redriven: for the twin of redrive_move: stop it while nothing is written, if need be.
--
-- KEYS  messages       as in redrive_move
--       data           as there
--       dead_messages  as there
--       dead_data      as there
-- ARGV  rest           …  as there
-- REPLY none

local messages, data, dead_messages, dead_data = KEYS[1], KEYS[2], KEYS[3], KEYS[4]

-- How long the old bodies are is known here alone. The ledger is the first that is written to.
watch.XADD = function(command, ledger, ...)
  if not opened then
    due_entries, due_bytes = 0, 0
    for i = 2, #ARGV, 3 do
      local id, changed, body = ARGV[i], ARGV[i + 1] == '1', ARGV[i + 2]
      due_entries = due_entries + 1
      due_bytes = due_bytes + (changed and #body or made.call('HSTRLEN', dead_data, id))
    end
  end
  claim_room()
  return made.call(command, ledger, ...)
end
