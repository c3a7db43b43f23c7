-- journal_received: for the twins of receive and receive_one: tell who was received.
--
-- KEYS  none
-- ARGV  none
-- REPLY none

after = function(reply)
  if type(reply) == 'table' and reply[1] ~= 0 then
    for i = 2, #reply, 4 do
      tell(0, 'received', reply[i], 'a', reply[i + 2])
    end
  end
end
