-- Stores the voter's records, and the state of the book. Needs voters, book, index, bucket, at, stop, voter,
-- mine, kinds, slots, changes, buckets, ballots, ended, and count, the number of records before.

redis.call('HSET', voters, index,
  string.sub(bucket, 1, at - 1) .. voter .. table.concat(mine, voter) .. string.sub(bucket, stop))
redis.call('HSET', book, ':state', string.format('%.0f %.0f %.0f %.0f %.0f %.0f', slots - count + #mine,
  changes + 1, buckets, ballots, kinds, ended))
