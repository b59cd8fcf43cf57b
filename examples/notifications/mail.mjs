// Tells by mail, through the sendmail of this machine: MAIL_TO=me@example.com node mail.mjs
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { relay } from './relay.mjs'

const { MAIL_TO, MAIL_FROM = 'holdfast', SENDMAIL = '/usr/sbin/sendmail' } = process.env
const encoded = (text) => Buffer.from(text).toString('base64')

relay(async ({ title, text, link }) => {
  const head = [
    `From: ${MAIL_FROM}`,
    `To: ${MAIL_TO}`,
    // A subject of any text, on one line: what agents write cannot add a header.
    `Subject: =?utf-8?B?${encoded(title.slice(0, 30))}?=`,
    'Content-Type: text/plain; charset=utf-8',
    'Content-Transfer-Encoding: base64',
  ]
  const body = encoded([text, ...(link ? ['', link] : [])].join('\n')).replace(/.{76}/g, '$&\n')
  const child = spawn(SENDMAIL, ['-t', '-oi'], { stdio: ['pipe', 'ignore', 'inherit'] })
  child.stdin.on('error', () => undefined).end(`${head.join('\n')}\n\n${body}\n`)
  const [code] = await once(child, 'close')
  if (code !== 0) throw new Error(`sendmail ended with ${code}`)
})
