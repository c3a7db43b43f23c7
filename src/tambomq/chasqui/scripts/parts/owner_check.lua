-- owner_check: check which of many entries a consumer still owns.
--
-- NEEDS is_owner

-- Entries are roughly in stream order, so one XPENDING finds nearly all; `is_owner` finds the rest.
local function owner_check(stream, group, consumer, entries)
  local known = {}
  if #entries > 0 then
    local first, last = entries[1], entries[#entries]
    local rows = redis.pcall('XPENDING', stream, group, first, last, #entries, consumer)
    for _, row in ipairs(rows) do
      known[row[1]] = true
    end
  end
  return function(entry)
    return known[entry] or is_owner(stream, group, consumer, entry)
  end
end
