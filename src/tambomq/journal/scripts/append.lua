-- append: record messages that passed through, as long as the journal is not full.
--
-- KEYS  journal       stream  {tambo:<protocol>:<queue>}:journal
--       state         hash    {tambo:<protocol>:<queue>}:journal:state
-- ARGV  max_entries   bound of the journal
--       max_bytes     bound of the journal
--       missed        messages that could not be recorded earlier; counted as dropped
--       targets, body …       number of receivers, and body
-- REPLY how many were recorded
-- NEEDS journal_entries

local journal, state = KEYS[1], KEYS[2]
local max_entries, max_bytes, missed = ARGV[1], ARGV[2], tonumber(ARGV[3])

local opened = open_journal(journal, state, max_entries, max_bytes)
local recorded, dropped = 0, missed
for i = 4, #ARGV, 2 do
  local targets, body = ARGV[i], ARGV[i + 1]
  if fits(opened, 1, #body) then
    write_entry(opened, #body, 'e', 'sent', 'ts', opened.now, 'to', targets, 'd', body)
    recorded = recorded + 1
  else
    dropped = dropped + 1
  end
end
save_totals(opened)
if dropped > 0 then
  redis.call('HINCRBY', state, 'dropped', dropped)
end
return recorded
