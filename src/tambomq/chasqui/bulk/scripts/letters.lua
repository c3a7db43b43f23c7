#!lua flags=no-writes
-- letters: read dead letters without their payloads, the newest first.
--
-- KEYS  dlq      stream  {chasqui:<queue>}:dlq
-- ARGV  before   the entry to begin after, as '(<entry>'; '+' for the newest
--       count    how many at most
--       longest  how much of an error text is returned, in bytes
-- REPLY entry, job id, name, reason, error type, error text, bytes of the payload, attempt (-1 if unknown)
--       of each
-- NEEDS prefix

local dlq = KEYS[1]
local before, count, longest = ARGV[1], ARGV[2], tonumber(ARGV[3])

-- The lengths that the first bytes of a MessagePack string or binary announce, by how many bytes hold them.
local LENGTHS = {[0xc4] = 1, [0xc5] = 2, [0xc6] = 4, [0xd9] = 1, [0xda] = 2, [0xdb] = 4}

-- Return the number of *bytes* bytes at *at*, the highest first.
local function number_at(text, at, bytes)
  local number = 0
  for i = at, at + bytes - 1 do
    number = number * 256 + (text:byte(i) or 0)
  end
  return number
end

-- Return where the value after the string or binary at *at* begins.
local function after_text(text, at)
  local head = text:byte(at) or 0
  if head >= 0xa0 and head <= 0xbf then
    return at + 1 + head - 0xa0
  end
  local bytes = LENGTHS[head]
  return bytes and at + 1 + bytes + number_at(text, at + 1, bytes)
end

-- Return the unsigned integer at *at*, and where the next value begins.
local function uint_at(text, at)
  local head = text:byte(at)
  if head and head <= 0x7f then
    return head, at + 1
  elseif head and head >= 0xcc and head <= 0xcf then
    local bytes = 2 ^ (head - 0xcc)
    return number_at(text, at + 1, bytes), at + 1 + bytes
  end
end

-- Return the attempt in an envelope: its fourth element. cmsgpack cannot unpack its payload, a binary.
local function attempt_of(envelope)
  local head = envelope:byte(1)
  local at = (head == 0x94 or head == 0x95) and after_text(envelope, 2)
  at = at and after_text(envelope, at)
  local created, attempt
  if at then
    created, at = uint_at(envelope, at)
  end
  if created then
    attempt = uint_at(envelope, at)
  end
  return attempt or -1
end

local reply = {}
for _, row in ipairs(redis.call('XREVRANGE', dlq, before, '-', 'COUNT', count)) do
  local known, fields = {}, row[2]
  -- If a field occurs twice, the first one counts.
  for i = #fields - 1, 1, -2 do
    known[fields[i]] = fields[i + 1]
  end
  local payload, detail = known.d or '', known.detail or ''
  reply[#reply + 1] = {
    row[1], job_id(payload), known.n or '', known.reason or '', known.error_type or '',
    detail:sub(1, longest), #payload, attempt_of(payload),
  }
end
return reply
