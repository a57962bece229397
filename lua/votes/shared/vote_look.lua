-- Finds the voter's records. buckets is the number of buckets; index the number of the voter's bucket as text;
-- half the largest power of 2 up to the number of buckets; bucket has its records; mine, the last 4 bytes of each
-- of the voter's, which stand from at to before stop.
-- needs: voters, voter, buckets
-- gives: index, half, bucket, mine, at, stop

local one, two, three, four = string.byte(voter, 1, 4)
local hash = ((one * 256 + two) * 256 + three) * 256 + four
local _, exponent = math.frexp(buckets)
local half = 2 ^ (exponent - 1)
local index = hash % (2 * half)
if index >= buckets then
  index = hash % half
end
index = string.format('%d', index) -- a number as text is cheaper than one that redis.call makes a text of
local bucket = redis.call('HGET', voters, index) or ''
local at = string.find(bucket, voter, 1, true)
while at and at % 16 ~= 1 do
  at = string.find(bucket, voter, at + 1, true)
end
at = at or #bucket + 1
local mine, stop = {}, at
while string.sub(bucket, stop, stop + 11) == voter do
  mine[#mine + 1] = string.sub(bucket, stop + 12, stop + 15)
  stop = stop + 16
end
