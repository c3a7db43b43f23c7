-- is_holder: check that a consumer may end an entry: it owns it, or did so before a failover.
--
-- NEEDS is_owner

local function is_before(id, other)
  local ms, seq = id:match('^(%d+)-(%d+)$')
  local other_ms, other_seq = other:match('^(%d+)-(%d+)$')
  ms, seq, other_ms, other_seq = tonumber(ms), tonumber(seq), tonumber(other_ms), tonumber(other_seq)
  if not (ms and other_ms) then
    return false
  end
  return ms < other_ms or ms == other_ms and seq < other_seq
end

-- A replica that is promoted may lack the last deliveries. Where its group has not reached an entry,
-- nobody has received it: a worker that ran it may end it, so that it does not run once more.
local function is_undelivered(stream, group, entry)
  for _, fields in ipairs(redis.pcall('XINFO', 'GROUPS', stream)) do
    local facts = {}
    for i = 1, #fields, 2 do
      facts[fields[i]] = fields[i + 1]
    end
    if facts.name == group then
      return is_before(facts['last-delivered-id'], entry)
    end
  end
  return false
end

-- With *looks_only* an entry that was not delivered stays so.
local function is_holder(stream, group, consumer, entry, looks_only)
  if is_owner(stream, group, consumer, entry) then
    return true
  elseif #redis.call('XRANGE', stream, entry, entry) == 0 or not is_undelivered(stream, group, entry) then
    return false
  elseif not looks_only then
    -- XACKDEL deletes only what is pending.
    redis.call('XCLAIM', stream, group, consumer, 0, entry, 'FORCE', 'JUSTID')
  end
  return true
end
