-- rewind: repair messages that would stay hidden too long because the server's clock was set back.

-- Return the visibility timeout (ms) of a message that was hidden at a time later than now, else nil.
local function hidden_ahead(record, score, now)
  local seconds, micros, hide = string.match(record or '', ' (%d+)%.(%d+) (%S+)$')
  if not seconds then
    return nil
  end
  local at, hide_ms = seconds * 1000 + math.floor(micros / 1000), math.floor(hide * 1000 + 0.5)
  -- A different score was set by a client that writes no records; it is left as it is.
  return at > now and tonumber(score) == at + hide_ms and hide_ms
end

-- Hide such messages again, from now on, for their visibility timeout. Handles one page of the records;
-- returns the cursor of the next page, and how many messages were changed.
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

-- Return the ms until a message becomes visible; *wait* is what the score of the *first* id says.
local function due_in(wait, messages, receipts, first, time)
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  local hide_ms = hidden_ahead(redis.call('HGET', receipts, first[1]), first[2], now)
  if not hide_ms then
    return wait
  end
  -- Other messages were probably hidden by the same clock.
  rewind(messages, receipts, time, '0')
  return math.min(wait, hide_ms)
end
