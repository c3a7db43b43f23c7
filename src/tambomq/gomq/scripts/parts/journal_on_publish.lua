-- journal_on_publish: journal messages that are appended to main queues with a journal.
--
-- NEEDS journal_entries

-- After the script's own keys: stream and hash of each journal. After its own arguments: id and payload
-- of each message; for each journal the index of its queue in KEYS and its number of messages; the
-- number of journals; their bounds. The caller has decoded the messages.
local max_bytes, max_entries = table.remove(ARGV), table.remove(ARGV)
local journals, by_queue = {}, {}
for n = tonumber(table.remove(ARGV)), 1, -1 do
  local count, place = tonumber(table.remove(ARGV)), tonumber(table.remove(ARGV))
  local state, stream = table.remove(KEYS), table.remove(KEYS)
  journals[n] = {stream = stream, state = state, place = place, count = count, messages = {}, bytes = 0}
end
for n = #journals, 1, -1 do
  local each = journals[n]
  for i = 2 * each.count, 1, -2 do
    each.messages[i], each.messages[i - 1] = table.remove(ARGV), table.remove(ARGV)
    each.bytes = each.bytes + #each.messages[i]
  end
  by_queue[KEYS[each.place]] = each
end

-- The second element becomes the index of the first queue whose journal is full.
local JOURNAL_FULL = {'JOURNAL_FULL'}

-- Called before the first write.
local function journal_is_full()
  for _, each in ipairs(journals) do
    each.journal = open_journal(each.stream, each.state, max_entries, max_bytes)
    if not fits(each.journal, each.count, each.bytes) then
      redis.call('HINCRBY', each.state, 'refused', each.count)
      JOURNAL_FULL[2] = JOURNAL_FULL[2] or each.place
    end
  end
  return JOURNAL_FULL[2]
end

-- Journal all messages that the caller appends to this queue.
local function stored(queue)
  local each = by_queue[queue]
  for i = 1, each and #each.messages or 0, 2 do
    local id, payload, journal = each.messages[i], each.messages[i + 1], each.journal
    write_entry(journal, #payload, 'e', 'sent', 'id', id, 'ts', journal.now, 'd', payload)
  end
end

local function close_journal()
  for _, each in ipairs(journals) do
    save_totals(each.journal)
  end
end
