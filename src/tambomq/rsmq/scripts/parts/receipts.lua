-- receipts: compute the receipt of the latest delivery of a message.

-- Return the valid receipt of a message with this receive count and delivery record. A client that
-- writes no records only changes the count; then the record is of an older delivery and is ignored.
local function receipt_of(rc, record)
  rc = rc or '0'
  if record and record:sub(1, #rc + 1) == rc .. '-' then
    return record:match('^%S+')
  end
  return rc
end
