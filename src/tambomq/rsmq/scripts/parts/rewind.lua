-- rewind: for other scripts: messages that a server's clock, set back, would keep hidden too long.
--
-- KEYS  none
-- ARGV  none
-- REPLY none

-- For how long a message was hidden (ms), if by a clock that has been set back since.
local function hidden_ahead(record, score, now)
  local seconds, micros, hide = string.match(record or '', ' (%d+)%.(%d+) (%S+)$')
  if not seconds then
    return nil
  end
  local at, hide_ms = seconds * 1000 + math.floor(micros / 1000), math.floor(hide * 1000 + 0.5)
  -- Another score was chosen by a client that writes no records, and is left to it.
  return at > now and tonumber(score) == at + hide_ms and hide_ms
end

-- Hide such messages anew, from now on and for as long as before. One page of the records: the
-- cursor of the next, and how many there were.
local function rewind(messages, receipts, time, cursor)
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  local page = redis.call('HSCAN', receipts, cursor, 'COUNT', 200)
  local ids, found, scores, records = {}, page[2], {}, {}
  for i = 1, #found, 2 do
    ids[#ids + 1] = found[i]
  end
  local scored = #ids > 0 and redis.call('ZMSCORE', messages, unpack(ids)) or {}
  for i, id in ipairs(ids) do
    local record = found[2 * i]
    local hide_ms = scored[i] and hidden_ahead(record, scored[i], now)
    if hide_ms then
      scores[#scores + 1], scores[#scores + 2] = now + hide_ms, id
      records[#records + 1] = id
      records[#records + 1] = record:match('^%S+') .. ' ' .. time[1] .. '.' .. time[2] .. record:match(' %S+$')
    end
  end
  if #scores > 0 then
    redis.call('ZADD', messages, unpack(scores))
    redis.call('HSET', receipts, unpack(records))
  end
  return page[1], #scores / 2
end

-- In how many ms something becomes visible, if the *first* id and its score say in *wait* ms.
local function due_in(wait, messages, receipts, first, time)
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  local hide_ms = hidden_ahead(redis.call('HGET', receipts, first[1]), first[2], now)
  if not hide_ms then
    return wait
  end
  -- The others have been hidden by the same clock.
  rewind(messages, receipts, time, '0')
  return math.min(wait, hide_ms)
end
