-- Reads the terms of a sale, a field of its hash. opens, closes and per_buyer are numbers; hold, keep and
-- ends, until when the keys are kept, are texts, since most refusals do without them.
-- needs: terms
-- gives: opens, closes, per_buyer, hold, keep, ends

local opens, closes, per_buyer, hold, keep, ends = string.match(terms,
  '^(%S+) (%S+) (%S+) (%S+) (%S+) (%S+)$')
opens, closes, per_buyer = opens + 0, closes + 0, per_buyer + 0 -- at a sixth of the cost of tonumber
