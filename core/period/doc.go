// Package period says when days, weeks, months and other periods begin and end, in any time zone.
//
// A [Period] is a function. Most callers want [Daily]; [Weekly], [Monthly] and [Every] are the others.
// Packages quota and votes take a Period in their options. They send its bounds to Redis as absolute times,
// and the script compares these with the server's clock, so processes whose clocks differ do not give anybody
// two periods.
package period
