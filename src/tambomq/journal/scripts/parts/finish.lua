-- finish: for journalled twins: do the work, and keep the account.
--
-- KEYS  none
-- ARGV  none
-- REPLY none

local done, reply = pcall(work)
if done and after then
  after(reply)
end
if opened then
  close_account(opened)
end
if done then
  return {1, reply}
elseif reply == FULL then
  made.call('HINCRBY', state, 'refused', due_entries)
  return {0}
end
return type(reply) == 'table' and reply or made.error_reply(reply)
