-- Reads the terms of a sale. Needs terms, a field of the sale. Gives the numbers opens, closes, per_buyer, and
-- the texts hold, keep and ends, until when the keys are kept: most refusals do without them.

local opens, closes, per_buyer, hold, keep, ends = string.match(terms,
  '^(%S+) (%S+) (%S+) (%S+) (%S+) (%S+)$')
opens, closes, per_buyer = opens + 0, closes + 0, per_buyer + 0 -- at a sixth of the cost of tonumber
