-- journal_job: for journalled twins: record a job that is stored.
--
-- KEYS  none
-- ARGV  none
-- REPLY none

local function sent(id, name, payload, ...)
  if name == '' then
    enter(opened, #payload, 'e', 'sent', 'id', id, 'ts', opened.now, 'd', payload, ...)
  else
    enter(opened, #payload, 'e', 'sent', 'id', id, 'ts', opened.now, 'n', name, 'd', payload, ...)
  end
end
