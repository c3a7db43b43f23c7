-- told: for journalled twins: tell the journals of keys what has arrived at a consumer.
--
-- KEYS  none
-- ARGV  none
-- REPLY none

-- The twin has seven arguments more than the script, at the end; that finds its own.
local most_bytes, most_entries = table.remove(ARGV), table.remove(ARGV)
local state_end, journal_end, journals = table.remove(ARGV), table.remove(ARGV), table.remove(ARGV)
local arrived, receiver = table.remove(ARGV), table.remove(ARGV)

-- Of keys and messages in turn.
local function tell_of(handed_out)
  for place = 1, #handed_out, 2 do
    local key, ids = journals .. handed_out[place], {}
    local journal, state = key .. journal_end, key .. state_end
    if has_begun(state) then
      for _, message in ipairs(handed_out[place + 1]) do
        ids[#ids + 1] = id_of(message)
      end
      tell('delivered', receiver, ids, journal, state, most_entries, most_bytes)
    end
  end
end

-- Whoever reads the batch that has arrived forgets it in the same step, so this is told once.
local read_untold = read_kept
local function read_kept(handed)
  local batch = read_untold(handed)
  if batch and batch[1] == arrived then
    -- What is no batch of ours is forgotten like one.
    pcall(tell_of, batch[2])
  end
  return batch
end
