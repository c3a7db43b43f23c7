-- journal_on: journal each job that is stored.
--
-- NEEDS prefix, journal_entries, journal_on_queue

-- The script's own arguments are followed by payloads and their number. The caller decodes envelopes
-- of other writers, whose encodings vary; envelopes in our own encoding are decoded here.
local payloads = {}
for place = tonumber(table.remove(ARGV)), 1, -1 do
  payloads[place] = table.remove(ARGV)
end

-- Size of the length field of a MessagePack bin 8, bin 16 and bin 32.
local LENGTHS = {[0xc4] = 1, [0xc5] = 2, [0xc6] = 4}

local function payload_of(envelope)
  local id, kind = job_id(envelope), envelope:byte(2)
  local at = #id + (kind == 0xd9 and 4 or kind == 0xda and 5 or 3)
  local width, size = LENGTHS[envelope:byte(at)], 0
  for place = at + 1, at + width do
    size = size * 256 + envelope:byte(place)
  end
  return envelope:sub(at + width + 1, at + width + size)
end

local function write_job(id, name, payload, ...)
  local journal = queue_journal()
  if name == '' then
    write_entry(journal, #payload, 'e', 'sent', 'id', id, 'ts', journal.now, 'd', payload, ...)
  else
    write_entry(journal, #payload, 'e', 'sent', 'id', id, 'ts', journal.now, 'n', name, 'd', payload, ...)
  end
end

-- Journal a job in the stream. *id* nil: read it from the envelope. *place*: index of its payload.
local function stored(id, name, envelope, place)
  write_job(id or job_id(envelope), name, payloads[place] or payload_of(envelope))
end

-- Journal a delayed job, due at *run_at* (ms).
local function stored_delayed(id, name, member, run_at, place)
  local head, length = prefix(member)
  local payload = payloads[place] or payload_of(member:sub(head + length + 1))
  write_job(id, name, payload, 'delay_ms', math.max(0, run_at - queue_journal().now))
end
