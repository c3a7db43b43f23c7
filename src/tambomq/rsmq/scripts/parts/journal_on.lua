-- journal_on: journal messages that are stored, delivered and removed.
--
-- NEEDS journal_entries, journal_on_queue

-- *scores* alternate with ids, as in ZADD; *fields* are ids and bodies, as in HSET, in the same order.
local function stored(scores, fields)
  local journal = queue_journal()
  for i = 1, #scores, 2 do
    local delay_ms, id, body = scores[i] - journal.now, scores[i + 1], fields[i + 1]
    if delay_ms > 0 then
      write_entry(journal, #body, 'e', 'sent', 'id', id, 'ts', journal.now, 'delay_ms', delay_ms, 'd', body)
    else
      write_entry(journal, #body, 'e', 'sent', 'id', id, 'ts', journal.now, 'd', body)
    end
  end
end

local function delivered(id, rc)
  record_event(0, 'received', id, 'a', rc)
end

-- *reply*: of `receive`, that is visible_at, then id, body, rc and fr of each message.
local function delivered_all(reply)
  for i = 2, #reply, 4 do
    delivered(reply[i], reply[i + 2])
  end
end

local function removed(id)
  record_event(0, 'deleted', id)
end

local function removed_all(ids)
  for _, id in ipairs(ids) do
    removed(id)
  end
end

-- The traceback that may follow the reason is not journalled.
local function dead_lettered(id, why)
  local reason = why:sub(1, (why:find('\n--- traceback ---\n', 1, true) or 0) - 1)
  record_event(#reason, 'dead', id, 'r', reason)
end

local function dead_lettered_all(ids, why)
  for _, id in ipairs(ids) do
    dead_lettered(id, why)
  end
end
