-- observed: ranges (from, to] of the numbers of messages that departed peers have observed.

-- Ranges kept per key. Messages in older ranges may be delivered a second time.
local RANGES = 500
-- Maximum messages of a key in an unacknowledged batch, which may return to its queue.
local BATCH = 1000

local function read_ranges(text)
  local ranges = {}
  for from, to in string.gmatch(text or '', '(-?%d+)-(-?%d+)') do
    ranges[#ranges + 1] = {tonumber(from), tonumber(to)}
  end
  return ranges
end

local function merged(ranges)
  table.sort(ranges, function(a, b) return a[1] < b[1] end)
  local out = {}
  for _, range in ipairs(ranges) do
    local last = out[#out]
    if last and range[1] <= last[2] then
      last[2] = math.max(last[2], range[2])
    else
      out[#out + 1] = {range[1], range[2]}
    end
  end
  return out
end

-- Return the last run of numbers in (from, to] that is in none of these merged ranges, as a range.
local function last_run(ranges, from, to)
  for place = #ranges, 1, -1 do
    local range = ranges[place]
    if range[2] < to then
      return math.max(from, range[2]), to
    end
    to = math.min(to, math.max(range[1], from))
  end
  return from, to
end

-- Format merged ranges that reach above the number *above*.
local function write_ranges(ranges, above)
  local words = {}
  for place = math.max(1, #ranges - RANGES + 1), #ranges do
    if ranges[place][2] > above then
      words[#words + 1] = string.format('%.0f-%.0f', ranges[place][1], ranges[place][2])
    end
  end
  return table.concat(words, ',')
end

local function read_observed(tally)
  return read_ranges(redis.call('HGET', tally, 'seen'))
end

-- *observed_by_all*: number up to which no message waits for any peer; older ranges are dropped.
local function write_observed(tally, ranges, observed_by_all)
  local text = write_ranges(merged(ranges), observed_by_all and observed_by_all - BATCH or -math.huge)
  if text ~= '' then
    redis.call('HSET', tally, 'seen', text)
  else
    redis.call('HDEL', tally, 'seen')
  end
end

-- Append ranges without merging, which is for `settle`. Return whether it should run soon.
local function append_observed(tally, ranges)
  if #ranges == 0 then
    return false
  end
  local text = write_ranges(merged(ranges), -math.huge)
  local known = redis.call('HGET', tally, 'seen')
  text = known and known .. ',' .. text or text
  redis.call('HSET', tally, 'seen', text)
  return #text > 8192
end
