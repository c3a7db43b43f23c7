-- seen: which messages somebody has observed, as ranges of their numbers (from, to].
--
-- KEYS  none
-- ARGV  none
-- REPLY none

local function read_ranges(text)
  local ranges = {}
  for from, to in string.gmatch(text or '', '(%d+)-(%d+)') do
    ranges[#ranges + 1] = {tonumber(from), tonumber(to)}
  end
  return ranges
end

local function write_ranges(ranges, above)
  local words = {}
  for _, range in ipairs(ranges) do
    if range[2] > above then
      words[#words + 1] = string.format('%.0f-%.0f', range[1], range[2])
    end
  end
  return table.concat(words, ',')
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
