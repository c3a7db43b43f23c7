-- journal_entries: write entries into a journal, within its bounds.

-- An entry counts as its body and this much for everything else.
local ENTRY_BYTES = 100

-- Reads both keys: if one is of another type, the script fails before it has written anything.
local function open_journal(stream, state, max_entries, max_bytes)
  local entries = redis.call('XLEN', stream)
  local totals = redis.call('HMGET', state, 'bytes', 'gone')
  local bytes = tonumber(totals[1]) or 0
  local clock = redis.call('TIME')
  return {
    stream = stream, state = state, entries = entries, bytes = bytes,
    -- Bytes of trimmed entries. In an empty journal that is all of them.
    trimmed = entries > 0 and (tonumber(totals[2]) or 0) or bytes,
    max_entries = tonumber(max_entries), max_bytes = tonumber(max_bytes),
    now = clock[1] * 1000 + math.floor(clock[2] / 1000),
  }
end

-- Whether *entries* more entries with *bytes* of bodies in all fit within the bounds.
local function fits(journal, entries, bytes)
  return journal.entries + entries <= journal.max_entries
    and journal.bytes - journal.trimmed + bytes + ENTRY_BYTES * entries <= journal.max_bytes
end

-- Fields and values alternate and are passed on: building a table for each entry doubles the time.
local function write_entry(journal, body_bytes, ...)
  journal.entries, journal.bytes = journal.entries + 1, journal.bytes + body_bytes + ENTRY_BYTES
  redis.call('XADD', journal.stream, '*', 'o', journal.bytes, ...)
  journal.changed = true
end

local function save_totals(journal)
  if journal.changed then
    redis.call('HSET', journal.state, 'bytes', journal.bytes, 'gone', journal.trimmed)
  end
end
