-- leave: a peer receives a key no more; what nobody else had or will have goes back.
--
-- KEYS  none
-- ARGV  none
-- REPLY none

-- A batch that another was handed may come back to its queue, so what is known of the messages
-- in it is not yet forgotten. It holds no more of a key than this.
local BATCH = 1000

local function leave(queue, tally, list, others)
  local known = fields_of(tally)
  local total = tonumber(known['dispatched']) or 0
  local waiting, returned = length(list), 0
  local upto = total - waiting
  local ranges, longest, least = witnesses(known, others, total)
  local alone = waiting - longest
  if alone > 0 then
    redis.call('LTRIM', list, 0, alone - 1)
    local last = #ranges
    for number = upto + alone, upto + 1, -1 do
      while last > 0 and ranges[last][1] >= number do
        last = last - 1
      end
      if last > 0 and number <= ranges[last][2] then
        redis.call('RPOP', list)
      else
        redis.call('LMOVE', list, queue, 'RIGHT', 'LEFT')
        returned = returned + 1
      end
    end
  end
  if #others > 0 then
    local gone = read_ranges(known['seen'])
    gone[#gone + 1] = {tonumber(known[list]) or upto, upto}
    redis.call('HSET', tally, 'seen', write_ranges(merged(gone), least - BATCH))
  else
    redis.call('HDEL', tally, 'seen')
  end
  redis.call('HDEL', tally, list)
  redis.call('DEL', list)
  return returned
end

-- All dedicated queues of a key end alike: who waits for the most leaves last, and what goes back
-- is in its old order.
local function leave_together(queue, tally, lists, others)
  local returned = 0
  table.sort(lists, function(a, b) return length(a) > length(b) end)
  for _, list in ipairs(lists) do
    others[#others + 1] = list
  end
  for _ = 1, #lists do
    returned = returned + leave(queue, tally, table.remove(others), others)
  end
  return returned
end
