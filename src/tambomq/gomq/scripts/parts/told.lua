-- told: for journalled twins: tell the journals of keys what has arrived at a consumer.
--
-- KEYS  none
-- ARGV  none
-- REPLY none

-- The twin has seven arguments more than the script, at the end; that finds its own.
local most_bytes, most_entries = table.remove(ARGV), table.remove(ARGV)
local state_end, journal_end, journals = table.remove(ARGV), table.remove(ARGV), table.remove(ARGV)
local arrived, receiver = table.remove(ARGV), table.remove(ARGV)

local function tell_of(key, messages)
  local journal, state = journals .. key .. journal_end, journals .. key .. state_end
  -- Whoever records the first message of a key makes it.
  if redis.call('EXISTS', state) == 0 then
    return
  end
  local ids, told = {}, 0
  for _, message in ipairs(messages) do
    ids[#ids + 1] = id_of(message)
  end
  -- A journal that cannot be written keeps no message from its reader.
  pcall(function()
    local account = open_account(journal, state, most_entries, most_bytes)
    while told < #ids and fits(account, 1, #receiver) do
      enter(account, #receiver, 'e', 'delivered', 'id', ids[told + 1], 'ts', account.now, 'n', receiver)
      told = told + 1
    end
    close_account(account)
  end)
  if told < #ids then
    redis.pcall('HINCRBY', state, 'dropped', #ids - told)
  end
end

-- Of keys and messages in turn.
local function tell(handed_out)
  for place = 1, #handed_out, 2 do
    tell_of(handed_out[place], handed_out[place + 1])
  end
end

-- Whoever reads the batch that has arrived forgets it in the same step, so this is told once.
local read_untold = read_kept
local function read_kept(handed)
  local batch = read_untold(handed)
  if batch and batch[1] == arrived then
    -- What is no batch of ours is forgotten like one.
    pcall(tell, batch[2])
  end
  return batch
end
