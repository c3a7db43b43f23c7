-- readers: trim the entries that all readers have committed.

local ENTRY = 100
-- Entries that one call trims, approximately: freeing all of a large journal would block the server.
local TRIMMED = 2000

-- Whether an entry id is later than another. Compared as text: the numbers exceed Lua's precision.
local function is_later(id, other)
  local ms, seq = id:match('^0*(%d-)%-0*(%d-)$')
  local other_ms, other_seq = other:match('^0*(%d-)%-0*(%d-)$')
  if ms ~= other_ms then
    return #ms > #other_ms or #ms == #other_ms and ms > other_ms
  end
  return #seq > #other_seq or #seq == #other_seq and seq > other_seq
end

local function field(entry, name)
  for place = 1, #entry[2], 2 do
    if entry[2][place] == name then
      return entry[2][place + 1]
    end
  end
end

-- The last entry that all readers have committed stays: it proves that no later entry was trimmed.
-- Returns how many entries were trimmed. If these are half of TRIMMED or more, there may be others.
local function trim(journal, state)
  local lowest
  local fields = redis.call('HGETALL', state)
  for place = 1, #fields, 2 do
    local id = fields[place]:sub(1, 10) == 'committed:' and fields[place + 1]
    if id and (not lowest or is_later(lowest, id)) then
      lowest = id
    end
  end
  -- First whole nodes, of a hundred entries or 4 KB, and then the rest of one.
  local dropped = lowest and redis.call('XTRIM', journal, 'MINID', '~', lowest, 'LIMIT', TRIMMED) or 0
  if lowest and dropped < TRIMMED / 2 then
    dropped = dropped + redis.call('XTRIM', journal, 'MINID', '=', lowest)
  end
  local first = redis.call('XRANGE', journal, '-', '+', 'COUNT', 1)[1]
  local upto = first and tonumber(field(first, 'o') or '')
  if upto then
    -- Only `delivered` entries count the size of `n`, which is the consumer's name there.
    local consumer = field(first, 'e') == 'delivered' and field(first, 'n') or ''
    local size = ENTRY + #(field(first, 'd') or '') + #(field(first, 'r') or '') + #consumer
    redis.call('HSET', state, 'gone', string.format('%.0f', math.max(0, upto - size)))
  end
  return dropped
end
