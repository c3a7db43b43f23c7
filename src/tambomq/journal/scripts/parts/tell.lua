-- tell: for other scripts: tell a journal that has begun what has become of messages.
--
-- KEYS  none
-- ARGV  none
-- REPLY none

-- Whoever records the first message of a queue makes it. On a cluster it is in another slot than
-- the queue, and nobody is told.
local function has_begun(state)
  return redis.pcall('EXISTS', state) == 1
end

-- One that cannot be written, or is full, keeps no message where it is: what is missing is counted.
local function tell(event, name, ids, journal, state, most_entries, most_bytes)
  local told = 0
  pcall(function()
    local account = open_account(journal, state, most_entries, most_bytes)
    while told < #ids and fits(account, 1, #name) do
      if name == '' then
        enter(account, 0, 'e', event, 'id', ids[told + 1], 'ts', account.now)
      else
        enter(account, #name, 'e', event, 'id', ids[told + 1], 'ts', account.now, 'n', name)
      end
      told = told + 1
    end
    close_account(account)
  end)
  if told < #ids then
    redis.pcall('HINCRBY', state, 'dropped', #ids - told)
  end
end
