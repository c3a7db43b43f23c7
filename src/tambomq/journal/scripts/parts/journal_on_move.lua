-- journal_on_move: journal messages that left for another queue, if their queue has a journal.
--
-- NEEDS journal_events

-- Four arguments follow those of the script, among them the journal's keys: on a cluster the journal
-- is in another slot, and declaring its keys would make Redis refuse the call.
local max_bytes, max_entries = table.remove(ARGV), table.remove(ARGV)
local state, stream = table.remove(ARGV), table.remove(ARGV)

local function moved(ids)
  if journal_exists(state) then
    record_events('moved', '', ids, stream, state, max_entries, max_bytes)
  end
end
