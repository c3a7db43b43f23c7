#!lua
-- redrive_move: move dead letters back to the queue, and record them for an undo.
--
-- KEYS  messages       zset    <ns>:<queue>
--       data           hash    <ns>:<queue>:Q
--       dead_messages  zset    <ns>:<queue>-dead
--       dead_data      hash    <ns>:<queue>-dead:Q
--       record         hash    <ns>:<queue>:redrive:<id>
--       ledger         stream  <ns>:<queue>:redrive:<id>:moved
--       receipts       hash    <ns>:<queue>:receipts
--       dead_receipts  hash    <ns>:<queue>-dead:receipts
-- ARGV  keep_s         TTL of the record, in seconds
--       id, changed, body  …   a message; 1 if it gets a new body, and that
-- REPLY how many this redrive has moved since it began; how many of these are in flight in the
--       dead-letter queue, and how many the queue refuses; 0; an integer if the redrive is undone, or not
--       known; nil if the queue does not exist
-- NEEDS journal_on, journal_on_queue

local messages, data, dead_messages, dead_data = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local record, ledger, receipts, dead_receipts, keep_s = KEYS[5], KEYS[6], KEYS[7], KEYS[8], ARGV[1]

local known, own = redis.call('HMGET', record, 'state', 'moved'), redis.call('HMGET', data, 'vt', 'maxsize')
if not own[1] then
  return nil
elseif not known[1] or known[1] == 'undone' then
  return 0
end
-- Read the keys first: one of another type then fails before anything is written.
redis.call('XLEN', ledger)
redis.call('HLEN', receipts)
redis.call('HLEN', dead_receipts)
redis.call('ZCARD', messages)
local maxsize = tonumber(own[2]) or -1
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- Return the number of dead letters, and the bytes of their bodies.
local function size_of_all()
  local bytes = 0
  for i = 2, #ARGV, 3 do
    bytes = bytes + (ARGV[i + 1] == '1' and #ARGV[i + 2] or redis.call('HSTRLEN', dead_data, ARGV[i]))
  end
  return (#ARGV - 1) / 3, bytes
end

local count, held, refused = 0, 0, 0
for i = 2, #ARGV, 3 do
  local id, changed, body = ARGV[i], ARGV[i + 1] == '1', ARGV[i + 2]
  local at = redis.call('ZSCORE', dead_messages, id)
  local was = redis.call('HMGET', dead_data, id, id .. ':why', id .. ':rc', id .. ':fr')
  body = changed and body or was[1]
  if at and body and tonumber(at) > now then
    held = held + 1
  elseif at and body and (maxsize ~= -1 and #body > maxsize or redis.call('ZSCORE', messages, id)) then
    refused = refused + 1
  elseif at and body then
    if count == 0 and journal_is_full(size_of_all()) then return JOURNAL_FULL end
    local row = {'from', id, 'to', id, 'at', at}
    for n, name in ipairs({'body', 'why', 'rc', 'fr'}) do
      -- An unchanged body need not be stored twice.
      if was[n] and (n > 1 or changed) then
        row[#row + 1] = name
        row[#row + 1] = was[n]
      end
    end
    redis.call('XADD', ledger, '*', unpack(row))
    -- The receive count restarts in both queues: no earlier receipt may become valid again.
    redis.call('HDEL', receipts, id)
    redis.call('HDEL', dead_receipts, id)
    redis.call('ZADD', messages, now, id)
    redis.call('HSET', data, id, body)
    stored({now, id}, {id, body})
    -- A damaged counter must not make the script fail half-way.
    redis.pcall('HINCRBY', data, 'totalsent', 1)
    redis.call('ZREM', dead_messages, id)
    redis.call('HDEL', dead_data, id, id .. ':why', id .. ':rc', id .. ':fr')
    count = count + 1
  end
end
local total = (tonumber(known[2]) or 0) + count
redis.call('HSET', record, 'moved', total)
close_journal()
redis.call('EXPIRE', record, keep_s)
redis.call('EXPIRE', ledger, keep_s)
return {total, held, refused, 0}
