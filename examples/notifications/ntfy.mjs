// Tells a phone by ntfy: NTFY_URL=https://ntfy.sh NTFY_TOPIC=a-topic-that-nobody-guesses node ntfy.mjs
import { relay } from './relay.mjs'

const { NTFY_URL, NTFY_TOPIC: topic, NTFY_TOKEN: token } = process.env

relay(async ({ title, text: message, link }) => {
  const { ok, status } = await fetch(NTFY_URL, {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
    },
    body: JSON.stringify({ topic, title, message, ...(link ? { click: link, priority: 4 } : {}) }),
    signal: AbortSignal.timeout(8_000),
  })
  if (!ok) throw new Error(`ntfy answered ${status}`)
})
