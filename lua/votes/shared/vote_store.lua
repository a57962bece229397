-- Stores the voter's records, and the state of the book. count is the number of records before.
-- needs: voters, index, bucket, at, voter, mine, stop, book, slots, count, changes, buckets, ballots
-- needs: kinds, ended

redis.call('HSET', voters, index,
  string.sub(bucket, 1, at - 1) .. voter .. table.concat(mine, voter) .. string.sub(bucket, stop))
redis.call('HSET', book, ':state', string.format('%.0f %.0f %.0f %.0f %.0f %.0f', slots - count + #mine,
  changes + 1, buckets, ballots, kinds, ended))
