-- journal_events: record an event of several messages in a journal that exists, and never fail.
--
-- NEEDS journal_entries

-- The first recorded send creates a journal. On a cluster it is in another slot than the queue,
-- so EXISTS fails there and nothing is recorded.
local function journal_exists(state)
  return redis.pcall('EXISTS', state) == 1
end

-- *name* is the entries' field `n`, or ''. A full journal, or one that cannot be written, must not
-- keep a message where it is: skipped entries are counted.
local function record_events(event, name, ids, stream, state, max_entries, max_bytes)
  local written = 0
  pcall(function()
    local journal = open_journal(stream, state, max_entries, max_bytes)
    while written < #ids and fits(journal, 1, #name) do
      if name == '' then
        write_entry(journal, 0, 'e', event, 'id', ids[written + 1], 'ts', journal.now)
      else
        write_entry(journal, #name, 'e', event, 'id', ids[written + 1], 'ts', journal.now, 'n', name)
      end
      written = written + 1
    end
    save_totals(journal)
  end)
  if written < #ids then
    redis.pcall('HINCRBY', state, 'dropped', #ids - written)
  end
end
