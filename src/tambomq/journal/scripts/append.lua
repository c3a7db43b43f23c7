-- append: record what passed through, as far as there is room.
--
-- KEYS  journal       stream  {tambo:<protocol>:<queue>}:journal
--       state         hash    {tambo:<protocol>:<queue>}:journal:state
-- ARGV  most_entries  that it may hold
--       most_bytes    that it may hold
--       missed        what could not even be asked for before; counted as dropped
--       targets, body …       how many it went to, and what it was
-- REPLY how many were recorded

local journal, state = KEYS[1], KEYS[2]
local most_entries, most_bytes, missed = ARGV[1], ARGV[2], tonumber(ARGV[3])

local account = open_account(journal, state, most_entries, most_bytes)
local recorded, dropped = 0, missed
for i = 4, #ARGV, 2 do
  local targets, body = ARGV[i], ARGV[i + 1]
  if fits(account, 1, #body) then
    enter(account, #body, 'e', 'sent', 'ts', account.now, 'to', targets, 'd', body)
    recorded = recorded + 1
  else
    dropped = dropped + 1
  end
end
close_account(account)
if dropped > 0 then
  redis.call('HINCRBY', state, 'dropped', dropped)
end
return recorded
