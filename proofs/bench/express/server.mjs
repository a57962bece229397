// A page that express-rate-limit limits, with rate-limit-redis and otherwise its defaults, for comparison.go:
//
//   node server.mjs REDIS_URL REQUESTS WINDOW_MS
//
// It prints the port on which it listens on 127.0.0.1.
import express from 'express'
import { rateLimit } from 'express-rate-limit'
import { RedisStore } from 'rate-limit-redis'
import { createClient } from 'redis'

const [url, limit, windowMs] = process.argv.slice(2)
const client = createClient({ url })
client.on('error', () => {}) // without a listener, the first error ends the process
await client.connect()

const app = express()
app.use(rateLimit({
  limit: Number(limit),
  windowMs: Number(windowMs),
  store: new RedisStore({ sendCommand: (...args) => client.sendCommand(args) }),
}))
app.get('/', (_, res) => res.send(''))
const server = app.listen(0, '127.0.0.1', () => console.log(server.address().port))
