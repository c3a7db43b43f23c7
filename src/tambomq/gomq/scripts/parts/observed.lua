-- seen: which messages somebody has had, as ranges of their numbers (from, to].
--
-- KEYS  none
-- ARGV  none
-- REPLY none

-- So many are remembered of a key. What is in an older one may be handed out a second time.
local RANGES = 500
-- A batch that is not acknowledged may come back to its queue. It has no more of a key than this.
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

-- The last run of numbers in (from, to] that are in none of these merged ranges, as a range.
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

-- Those that are merged, as far as they reach above a number.
local function write_ranges(ranges, above)
  local words = {}
  for place = math.max(1, #ranges - RANGES + 1), #ranges do
    if ranges[place][2] > above then
      words[#words + 1] = string.format('%.0f-%.0f', ranges[place][1], ranges[place][2])
    end
  end
  return table.concat(words, ',')
end

local function read_seen(tally)
  return read_ranges(redis.call('HGET', tally, 'seen'))
end

-- With a number up to which nothing waits for anybody, what is before it is forgotten.
local function write_seen(tally, ranges, least)
  local text = write_ranges(merged(ranges), least and least - BATCH or -math.huge)
  if text ~= '' then
    redis.call('HSET', tally, 'seen', text)
  else
    redis.call('HDEL', tally, 'seen')
  end
end

-- Adds to what is written, which `settle` merges with it. Whether it should do so soon.
local function note_seen(tally, ranges)
  if #ranges == 0 then
    return false
  end
  local text = write_ranges(merged(ranges), -math.huge)
  local known = redis.call('HGET', tally, 'seen')
  text = known and known .. ',' .. text or text
  redis.call('HSET', tally, 'seen', text)
  return #text > 8192
end
