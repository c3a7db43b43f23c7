#!lua flags=allow-oom
-- lease_claim: claim the oldest visible messages for a lease, and record them as members.
--
-- KEYS  messages     zset  <ns>:<queue>
--       data         hash  <ns>:<queue>:Q
--       ledger       hash  <ns>:<queue>:lease:<lease>
--       members      list  <ns>:<queue>:lease:<lease>:members
--       receipts     hash  <ns>:<queue>:receipts
-- ARGV  owner        owner token of the caller
--       number       of the claim
--       claim_token  unique token of the claim, if it is new
--       have         messages that the caller knows to be in the claim
--       count        how many more, at most 1000
--       hide_ms      for how long they are hidden
-- REPLY how many are in the claim, how many of them are new, its token; 'fenced' and the current
--       holder's label; 'wrong_claim' and the number of the last ended claim; nil if the queue does not exist
-- NEEDS record, claims, digest

local messages, data, ledger, members, receipts = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local owner, number, claim_token = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local have, count, hide_ms = tonumber(ARGV[4]), ARGV[5], tonumber(ARGV[6])

local refused, _, known = refused_claim(ledger, owner, number)
if refused then
  return refused
end
-- If an earlier reply was lost, report the claim as it is; nothing new is claimed.
local held = redis.call('LLEN', members)
if held ~= have then
  return {held, 0, known or ''}
end

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local visible_at = now + hide_ms
local record_end = '-' .. claim_token .. ' ' .. time[1] .. '.' .. time[2] .. ' ' .. hide_ms / 1000

local taken, skipped, texts = {}, 0, {}
repeat
  local ids = redis.call('ZRANGEBYSCORE', messages, '-inf', now, 'LIMIT', 0, count)
  local names = {'vt', 'totalrecv'}
  for i, id in ipairs(ids) do
    local n = i * 2 + 1
    names[n], names[n + 1] = id, id .. ':rc'
  end
  local stored = redis.call('HMGET', data, unpack(names))
  if not stored[1] then
    return nil
  end
  local scores, counts, records, again, places = {}, {'totalrecv', 0}, {}, {}, {}
  for i, id in ipairs(ids) do
    local n, score, body = i * 2 + 1, visible_at, stored[i * 2 + 1]
    if body then
      -- A damaged count restarts at 1, as in receive.
      local rc = (tonumber(stored[n + 1]) or 0) + 1
      rc = rc % 1 == 0 and rc > 0 and rc < 2 ^ 53 and rc or 1
      local c, r = #taken * 4 + 3, #taken * 2
      local text = texts[rc] or string.format('%.0f', rc)
      texts[rc] = text
      records[r + 1], records[r + 2] = id, text .. record_end
      counts[c], counts[c + 1] = names[n + 1], text
      counts[c + 2], counts[c + 3] = id .. ':fr', now
      if rc > 1 then
        again[#again + 1], places[#places + 1] = counts[c + 2], c + 3
      end
      taken[#taken + 1] = text .. ' ' .. digest(body) .. ' ' .. id
    else
      skipped, score = skipped + 1, math.max(visible_at, now + 30000)
    end
    scores[i * 2 - 1], scores[i * 2] = score, id
  end
  -- Few messages were received before: only of those the first time is read, and kept.
  local firsts = #again > 0 and redis.call('HMGET', data, unpack(again)) or {}
  for i, fr in ipairs(firsts) do counts[places[i]] = fr or now end
  if #taken > 0 then
    local before = tonumber(stored[2]) or 0
    record(receipts, messages, hide_ms, before, before + #taken, unpack(records))
  end
  if #ids > 0 then
    redis.call('ZADD', messages, unpack(scores))
  end
  if #taken > 0 then
    local total = (tonumber(stored[2]) or 0) + #taken
    counts[2] = total % 1 == 0 and total > 0 and total < 2 ^ 53 and total or #taken
    redis.call('HSET', data, unpack(counts))
  end
until #taken > 0 or #ids == 0 or skipped > 1000

if #taken == 0 then
  return {held, 0, known or ''}
end
redis.call('RPUSH', members, unpack(taken))
if held == 0 then
  redis.call('HSET', ledger, 'claim', number, 'mark', claim_token, 'token', claim_token,
    'hidden_until', visible_at)
  redis.call('HDEL', ledger, 'released')
end
return {held + #taken, #taken, claim_token}
