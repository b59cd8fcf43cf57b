// Tells a channel of Slack: SLACK_URL=https://hooks.slack.com/services/… node slack.mjs
import { relay } from './relay.mjs'

/** Slack's own marks: what agents write must not make links or mentions. */
const plain = (text) =>
  text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;')

relay(async ({ title, text, link }) => {
  const lines = [`*${plain(title)}*`, plain(text), ...(link ? [`<${link}|Answer>`] : [])]
  const { ok, status } = await fetch(process.env.SLACK_URL, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ text: lines.join('\n'), unfurl_links: false }),
    signal: AbortSignal.timeout(8_000),
  })
  if (!ok) throw new Error(`Slack answered ${status}`)
})
