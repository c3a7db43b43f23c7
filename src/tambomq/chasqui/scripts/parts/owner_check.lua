-- held: for other scripts: which of many entries are still in a consumer's hands.
--
-- KEYS  none
-- ARGV  none
-- REPLY none

-- They are about in the order they came in, so one look finds nearly all; `owns` finds the rest.
local function held(stream, group, consumer, entries)
  local known = {}
  if #entries > 0 then
    local first, last = entries[1], entries[#entries]
    local rows = redis.pcall('XPENDING', stream, group, first, last, #entries, consumer)
    for _, row in ipairs(rows) do
      known[row[1]] = true
    end
  end
  return function(entry)
    return known[entry] or owns(stream, group, consumer, entry)
  end
end
