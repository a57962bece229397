-- Marks an attempt as given back, or ends the script. Needs refund (the key of the mark), limits, stamp, now.

local longest = 0
for i = 1, limits do
  longest = math.max(longest, ARGV[i * 2] + 0)
end

-- The mark must not last long, because refused requests give back what earlier rules took: each leaves a
-- mark. What is older than the mark would be is not given back.
local REMEMBER = 600000
if now - stamp > REMEMBER * 1000 then
  return 0
end
if not redis.call('SET', refund, '1', 'NX', 'PX', math.min(longest, REMEMBER) + 2000) then
  return 0
end
