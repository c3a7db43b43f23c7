-- moved: for other scripts: tell the journal of a queue who has left it for another one.
--
-- KEYS  none
-- ARGV  none
-- REPLY none

-- On a cluster a journal is in another slot than its queue: nothing is told there.
local function tell_moved(journal, state, most_entries, most_bytes, ids)
  -- Whoever records the first message of a queue makes it.
  if redis.pcall('EXISTS', state) ~= 1 then
    return
  end
  local told = 0
  -- A journal that cannot be written keeps no message where it is.
  pcall(function()
    local account = open_account(journal, state, most_entries, most_bytes)
    while told < #ids and fits(account, 1, 0) do
      enter(account, 0, 'e', 'moved', 'id', ids[told + 1], 'ts', account.now)
      told = told + 1
    end
    close_account(account)
  end)
  if told < #ids then
    redis.pcall('HINCRBY', state, 'dropped', #ids - told)
  end
end
