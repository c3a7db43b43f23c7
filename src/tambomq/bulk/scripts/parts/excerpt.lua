-- excerpt: keep the two ends of a long value.

-- Return the first *bytes* of a value, the last 128 bytes if it is longer than that, and its size.
local function excerpt(value, bytes)
  if #value <= bytes then
    return value, '', #value
  end
  return value:sub(1, bytes), value:sub(math.max(bytes + 1, #value - 127)), #value
end
