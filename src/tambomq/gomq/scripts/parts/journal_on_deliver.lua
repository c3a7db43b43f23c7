-- journal_on_deliver: journal delivered messages, for each key that has a journal.
--
-- NEEDS journal_events, message_id

-- Six arguments follow those of the script. The script itself finds out which keys' journals it needs,
-- so it gets the prefix and the suffixes of their names.
local max_bytes, max_entries = table.remove(ARGV), table.remove(ARGV)
local state_end, stream_end, journals_prefix = table.remove(ARGV), table.remove(ARGV), table.remove(ARGV)
local receiver = table.remove(ARGV)

-- *batch*: keys and lists of messages alternate. Errors are ignored: a malformed batch must be
-- removable like any other.
local function delivered(batch)
  pcall(function()
    for place = 1, batch and #batch or 0, 2 do
      local key, ids = journals_prefix .. batch[place], {}
      local stream, state = key .. stream_end, key .. state_end
      if journal_exists(state) then
        for _, message in ipairs(batch[place + 1]) do
          ids[#ids + 1] = id_of(message)
        end
        record_events('delivered', receiver, ids, stream, state, max_entries, max_bytes)
      end
    end
  end)
end
