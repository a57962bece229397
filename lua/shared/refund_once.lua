-- Marks an attempt as settled, or ends the script. Needs refunds (the key of the names), name, again.

-- Names of 7 characters, the last at the end. When there are as many as are kept, earlier ones may be
-- forgotten; so a call that is certainly the first goes on, and one that may be a repetition does not.
local REMEMBER, MOST = 120000, 120
local names = redis.call('GET', refunds) or ''
if string.find(names, name .. ' ', 1, true) then
  return 0
end
if again and #names >= MOST * 8 then
  return -1
end
redis.call('SET', refunds, string.sub(names .. name .. ' ', -MOST * 8), 'PX', REMEMBER)
