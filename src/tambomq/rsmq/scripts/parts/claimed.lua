-- claimed: check which messages of a claim it still holds.
--
-- NEEDS member, receipts

-- Return the ids of some members of a claim, whether the claim still holds each, and its token.
local function claimed(ledger, data, receipts, lines)
  local ids, counts, names, held = {}, {}, {}, {}
  if #lines == 0 then
    return ids, held
  end
  for i, line in ipairs(lines) do
    local rc, _, id = member(line)
    ids[i], counts[i], names[i] = id, rc, id .. ':rc'
  end
  local claim = redis.call('HMGET', ledger, 'mark', 'token')
  local stored = redis.call('HMGET', data, unpack(names))
  local records = redis.call('HMGET', receipts, unpack(ids))
  -- Claims made by older versions have no token in their records.
  local token = claim[2] and claim[2] == claim[1] and claim[2]
  -- Most messages have the same receive count: the receipt that it makes is spelled once.
  local receipts_by_rc = {}
  for i, rc in ipairs(counts) do
    local ours = receipts_by_rc[rc]
    if not ours then
      ours = token and rc .. '-' .. token or rc
      receipts_by_rc[rc] = ours
    end
    held[i] = stored[i] == rc and receipt_of(rc, records[i]) == ours
  end
  return ids, held, token
end
