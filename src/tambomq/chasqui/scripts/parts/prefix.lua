-- prefix: parse a delayed member.

local function starts_envelope(byte)
  return byte ~= nil and (byte >= 0x80 and byte <= 0x9f or byte >= 0xdc and byte <= 0xdf)
end

-- Return the bytes of the prefix of *m* and of the name after it; nothing if *m* is malformed. The
-- engine writes the name's length in four bytes, the page in one. `wire.decode_member` has the same rule.
local function prefix(m)
  local a, b, c, d = m:byte(1, 4)
  local engine, page
  if #m >= 5 and b <= 1 and c == 0 and d == 0 and a + b * 256 <= math.min(256, #m - 4) then
    engine = a + b * 256
  end
  if #m >= 2 and 1 + a < #m then
    page = a
  end
  if engine and starts_envelope(m:byte(5 + engine)) then
    return 4, engine
  elseif page and starts_envelope(m:byte(2 + page)) then
    return 1, page
  elseif engine then
    return 4, engine
  elseif page then
    return 1, page
  end
end

-- Return the job id at the head of an envelope; '' if it is not encoded as a string there.
local function job_id(envelope)
  local head, kind, x, y = envelope:byte(1, 4)
  if not head or head < 0x93 or head > 0x95 or not kind then
    return ''
  elseif kind >= 0xa0 and kind <= 0xbf then
    return envelope:sub(3, 2 + kind - 0xa0)
  elseif kind == 0xd9 and x then
    return envelope:sub(4, 3 + x)
  elseif kind == 0xda and y then
    return envelope:sub(5, 4 + x * 256 + y)
  end
  return ''
end
