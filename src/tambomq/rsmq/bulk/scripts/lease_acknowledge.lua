#!lua flags=allow-oom
-- lease_acknowledge: delete, retry or dead-letter the messages of a committed claim, by their verdicts.
--
-- KEYS  messages       zset  <ns>:<queue>
--       data           hash  <ns>:<queue>:Q
--       ledger         hash  <ns>:<queue>:lease:<lease>
--       members        list  <ns>:<queue>:lease:<lease>:members
--       verdicts       hash  <ns>:<queue>:lease:<lease>:verdicts
--       queues         set   <ns>:QUEUES
--       dead_messages  zset  <ns>:<queue>-dead
--       dead_data      hash  <ns>:<queue>-dead:Q
--       receipts       hash  <ns>:<queue>:receipts
-- ARGV  owner          owner token of the caller
--       number         of the claim
--       claim_token    the claim's token; '' if unknown
--       count          messages at once, at most 1000
--       dead           name of the dead-letter queue
-- REPLY how many are left, deleted, to be retried, dead, no longer owned; 'fenced' and
--       the current holder's label; 'wrong_claim' and the number of the open claim
-- NEEDS claimed, claims

local messages, data, ledger, members, verdicts = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local queues, dead_messages, dead_data, receipts = KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local owner, number, claim_token, count, dead = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4], ARGV[5]

local refused = refused_ack(ledger, owner, number, claim_token)
if refused then
  return refused
end

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local tally = {0, 0, 0, 0, 0}

local function bury(id, body, why)
  redis.call('SADD', queues, dead)
  redis.call('ZADD', dead_messages, now, id)
  if redis.call('HEXISTS', dead_data, 'vt') == 0 then
    redis.call('HSET', dead_data, 'vt', redis.call('HGET', data, 'vt') or 30, 'delay', 0,
      'maxsize', -1, 'created', time[1], 'modified', time[1])
  end
  redis.call('HSET', dead_data, id, body, id .. ':why', why)
  redis.pcall('HINCRBY', dead_data, 'totalsent', 1)
end

-- Read the keys first: one of another type then fails before anything is written.
redis.call('ZCARD', dead_messages)
redis.call('HLEN', dead_data)
local judged = redis.call('HLEN', verdicts) > 0
local ended, fields = {}, {}
local ids, held = claimed(ledger, data, receipts, redis.call('LRANGE', members, 0, count - 1))
for i, id in ipairs(ids) do
  local verdict = judged and redis.call('HGET', verdicts, id) or ''
  local kind = 2
  if not held[i] then
    kind = 5
  elseif verdict:sub(1, 1) == 'r' then
    redis.call('ZADD', messages, 'XX', now + verdict:sub(2), id)
    kind = 3
  else
    local body = verdict:sub(1, 1) == 'd' and redis.call('HGET', data, id)
    if body then
      bury(id, body, verdict:sub(2))
      kind = 4
    end
    ended[#ended + 1] = id
    local n = #fields
    fields[n + 1], fields[n + 2], fields[n + 3], fields[n + 4] = id, id .. ':rc', id .. ':fr', id .. ':why'
  end
  tally[kind] = tally[kind] + 1
end
if #ended > 0 then
  redis.call('ZREM', messages, unpack(ended))
  redis.call('HDEL', data, unpack(fields))
  redis.call('HDEL', receipts, unpack(ended))
end
redis.call('LTRIM', members, count, -1)
tally[1] = redis.call('LLEN', members)
if tally[1] == 0 then
  redis.call('HSET', ledger, 'acked', number)
  redis.call('HDEL', ledger, 'claim', 'mark', 'token')
  redis.call('DEL', verdicts)
end
return tally
