-- Reads the voter's bucket. index is its number as text; half is as bucket_of says; bucket has its records;
-- mine, the last 4 bytes of each of the voter's, which stand from at to before stop.
-- needs: bucket_of, voter, voters, records_of
-- gives: index, half, bucket, mine, at, stop

local index, half = bucket_of(voter)
index = string.format('%d', index) -- a number as text is cheaper than one that redis.call makes a text of
local bucket = redis.call('HGET', voters, index) or ''
local mine, at, stop = records_of(bucket, voter)
