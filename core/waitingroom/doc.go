// Package waitingroom lets a crowd in at the rate that an application bears: as many visitors as its capacity
// are inside at a time, the others wait in line, and nobody is stuck behind those who have left. Redis keeps
// two bits and a byte per visitor who waits, whatever their number, and hears of all visitors of a process
// once a second. docs/guards/waiting-room.md tells how it works, and how to put it in front of a sale.
package waitingroom
