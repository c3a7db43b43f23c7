-- journal_on_queue: the journal of the one queue that a script works on, opened when first needed.
--
-- NEEDS journal_entries

-- Two keys and four arguments follow those of the script. They are removed before it runs.
local state, stream = table.remove(KEYS), table.remove(KEYS)
local stored_bytes, stored_entries = tonumber(table.remove(ARGV)), tonumber(table.remove(ARGV))
local max_bytes, max_entries = table.remove(ARGV), table.remove(ARGV)

local JOURNAL_FULL = {'JOURNAL_FULL'}
local opened

local function queue_journal()
  opened = opened or open_journal(stream, state, max_entries, max_bytes)
  return opened
end

-- Called before the first write of a script that must not store what it cannot journal. Only the
-- first call checks. *entries* and *bytes* default to what the caller of the script announced.
local function journal_is_full(entries, bytes)
  entries, bytes = entries or stored_entries, bytes or stored_bytes
  if opened or fits(queue_journal(), entries, bytes) then
    return false
  end
  redis.call('HINCRBY', state, 'refused', entries)
  return true
end

-- Record an event that a full journal must not prevent; skipped events are counted.
local function record_event(body_bytes, event, id, ...)
  local journal = queue_journal()
  if fits(journal, 1, body_bytes) then
    write_entry(journal, body_bytes, 'e', event, 'id', id, 'ts', journal.now, ...)
  else
    redis.call('HINCRBY', state, 'dropped', 1)
  end
end

local function close_journal()
  if opened then
    save_totals(opened)
  end
end
