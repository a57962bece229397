-- Marks an attempt as given back, or ends the script. Needs refund (the key of the mark), limits, stamp, now.

local longest = 0
for i = 1, limits do
  longest = math.max(longest, ARGV[i * 2] + 0)
end

-- The mark must be short-lived: a refused request gives back what earlier rules took, and each refund leaves
-- a mark. An attempt that is older than a mark lasts is not given back.
local REMEMBER = 600000
if now - stamp > REMEMBER * 1000 then
  return 0
end
if not redis.call('SET', refund, '1', 'NX', 'PX', math.min(longest, REMEMBER) + 2000) then
  return 0
end
