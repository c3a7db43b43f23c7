-- journal_redriven: for the twin of redrive_move: record each job that waits again.
--
-- KEYS  none
-- ARGV  none
-- REPLY none

local delayed, stream = table.remove(KEYS), table.remove(KEYS)

-- Of each job: its letter, its id, its name and its payload.
local jobs = {}
for place = 1, #extra, 4 do
  jobs[extra[place]] = {unpack(extra, place + 1, place + 3)}
end

-- A job goes to the stream before anything else is written; then the ledger tells its letter.
watch.XADD = function(command, key, ...)
  if key == stream then
    claim_room()
    return made.call(command, key, ...)
  end
  local reply, _, from, letter = made.call(command, key, ...), ...
  if from == 'from' then
    sent(unpack(jobs[letter]))
  end
  return reply
end
