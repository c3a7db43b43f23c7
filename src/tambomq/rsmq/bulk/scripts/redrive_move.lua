#!lua
-- redrive_move: let dead letters be received again, and write down what they were.
--
-- KEYS  messages       zset    <ns>:<queue>
--       data           hash    <ns>:<queue>:Q
--       dead_messages  zset    <ns>:<queue>-dead
--       dead_data      hash    <ns>:<queue>-dead:Q
--       record         hash    <ns>:<queue>:redrive:<id>
--       ledger         stream  <ns>:<queue>:redrive:<id>:moved
--       receipts       hash    <ns>:<queue>:receipts
--       dead_receipts  hash    <ns>:<queue>-dead:receipts
-- ARGV  keep_s         for how long it is remembered
--       id, changed, body  …   a message; 1 if it gets a new body, and that
-- REPLY how many this redrive has moved since it began; how many of these somebody is looking at,
--       and how many the queue does not take; 0; an integer if the redrive is undone, or not
--       known; nil when there is no such queue

local messages, data, dead_messages, dead_data = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local record, ledger, receipts, dead_receipts, keep_s = KEYS[5], KEYS[6], KEYS[7], KEYS[8], ARGV[1]

local known, own = redis.call('HMGET', record, 'state', 'moved'), redis.call('HMGET', data, 'vt', 'maxsize')
if not own[1] then
  return nil
elseif not known[1] or known[1] == 'undone' then
  return 0
end
-- Read each key before the first write: one of another type then stops us in time.
redis.call('XLEN', ledger)
redis.call('HLEN', receipts)
redis.call('HLEN', dead_receipts)
redis.call('ZCARD', messages)
local maxsize = tonumber(own[2]) or -1
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

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
    local row = {'from', id, 'to', id, 'at', at}
    for n, name in ipairs({'body', 'why', 'rc', 'fr'}) do
      -- A body that does not change need not be kept twice.
      if was[n] and (n > 1 or changed) then
        row[#row + 1] = name
        row[#row + 1] = was[n]
      end
    end
    redis.call('XADD', ledger, '*', unpack(row))
    -- The count of receives begins anew in both queues: no receipt from before counts again.
    redis.call('HDEL', receipts, id)
    redis.call('HDEL', dead_receipts, id)
    redis.call('ZADD', messages, now, id)
    redis.call('HSET', data, id, body)
    -- A counter that somebody has damaged is no reason to fail half-way.
    redis.pcall('HINCRBY', data, 'totalsent', 1)
    redis.call('ZREM', dead_messages, id)
    redis.call('HDEL', dead_data, id, id .. ':why', id .. ':rc', id .. ':fr')
    count = count + 1
  end
end
local total = (tonumber(known[2]) or 0) + count
redis.call('HSET', record, 'moved', total)
redis.call('EXPIRE', record, keep_s)
redis.call('EXPIRE', ledger, keep_s)
return {total, held, refused, 0}
