// What the relays here share: it receives the webhooks of a Holdfast, checks them, and hands each on once.
import { createHmac, timingSafeEqual } from 'node:crypto'
import { createServer } from 'node:http'

const { HOLDFAST_WEBHOOK_SECRET: secret = '', HOST = '127.0.0.1', PORT = '8080' } = process.env
if (!secret.startsWith('whsec_')) throw new Error('HOLDFAST_WEBHOOK_SECRET must begin with whsec_')
const key = Buffer.from(secret.slice('whsec_'.length), 'base64')

/** `send` passes a message on, `{title, text, link}`; if it fails, Holdfast tries again later. */
export function relay(send) {
  const sent = new Set()
  const take = async (request, response) => {
    try {
      const body = await read(request)
      const id = request.headers['webhook-id']
      if (!isSigned(request.headers, body)) return response.writeHead(401).end()
      const message = sent.has(id) ? null : messageOf(JSON.parse(body))
      if (message !== null) await send(message)
      // An event may come again: the newest thousand are remembered.
      sent.add(id)
      if (sent.size > 1_000) sent.delete(sent.values().next().value)
      response.writeHead(204).end()
    } catch (error) {
      console.error(error.message)
      response.writeHead(502).end()
    }
  }
  const server = createServer((request, response) => void take(request, response))
  server.listen(Number(PORT), HOST, () =>
    console.log(`listening on ${HOST}:${server.address().port}`),
  )
}

async function read(request) {
  let body = ''
  for await (const chunk of request.setEncoding('utf8')) {
    body += chunk
    if (body.length > 1_000_000) throw new Error('the body is too large')
  }
  return body
}

/** By Standard Webhooks; a message of another time may be a copy of an old one. */
function isSigned(headers, body) {
  const { 'webhook-id': id, 'webhook-timestamp': timestamp } = headers
  if (!(Math.abs(Date.now() / 1_000 - Number(timestamp)) < 300)) return false
  const wanted = createHmac('sha256', key).update(`${id}.${timestamp}.${body}`).digest()
  return String(headers['webhook-signature'])
    .split(' ')
    .map((signature) => Buffer.from(signature.replace(/^v1,/, ''), 'base64'))
    .some((given) => given.length === wanted.length && timingSafeEqual(given, wanted))
}

/** Null: nothing that a person has to be told. */
function messageOf({ type, data }) {
  const { session, ask, error } = data
  const name = session?.key ?? session?.id
  if (type === 'ask.opened' && !ask.isDecided) {
    const about = [ask.question, ask.command ?? ask.url ?? ask.tool].filter(Boolean).join('\n')
    return { title: `${session.agent} asks (${name})`, text: about || ask.kind, link: ask.link }
  }
  if (type === 'turn.failed') {
    return { title: `A turn failed (${name})`, text: error.message ?? error.code }
  }
  if (type === 'turn.done') return { title: `Done (${name})`, text: data.text ?? 'A turn is over.' }
  if (type === 'webhook.test') return { title: 'Holdfast', text: 'This is a test.' }
  return null
}
