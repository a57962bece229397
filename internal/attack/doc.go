// Package attack sends bounded attacks to a web application that its owner wants to try: a burst at the edge
// of a limit's window, a race for a stock, and requests that forge who sends them. It counts what got
// through.
//
// An [Attacker] sends to one host only, which is a loopback address unless the caller names the host. It
// follows no redirects, uses no proxy, and stops at the bounds of its [Options]. What it counts is certain:
// an answer was admitted at some moment between the sending of its request and the end of its answer, and
// [MostIn] counts an admission in a window only if all of that time is in it.
package attack
