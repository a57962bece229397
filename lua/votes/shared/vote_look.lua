-- Reads the voter's bucket. Needs voters, voter, bucket_of, records_of. Gives index, its number as text; half, as
-- bucket_of says; bucket, its records; mine, the last 4 bytes of each of the voter's, which stand from at to
-- before stop.

local index, half = bucket_of(voter)
index = string.format('%d', index) -- a number as text is cheaper than one that redis.call makes a text of
local bucket = redis.call('HGET', voters, index) or ''
local mine, at, stop = records_of(bucket, voter)
