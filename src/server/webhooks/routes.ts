/** The routes of webhooks, for their operator. */
import type { Exchange } from '../../doors/exchange.ts'
import { json, routes, type Route } from '../../doors/route.ts'
import { orNull } from '../../schema/contract.ts'
import { Type } from '../../schema/typebox.ts'
import type { Webhooks } from './webhooks.ts'

const text = Type.String()
const texts = Type.Array(text)
const count = Type.Integer()
const time = orNull(count, { description: 'Milliseconds since 1970.' })
const status = orNull(count, { description: 'Of the answer; null: there was none.' })

const WebhookView = Type.Object({
  name: text,
  origin: Type.String({ description: 'Of its address, the rest of which may be a secret.' }),
  events: texts,
  labels: Type.Record(text, text),
  agents: orNull(texts),
  owners: orNull(texts),
  answers: texts,
  state: Type.String({ enum: ['active', 'failing', 'paused'] }),
  node: orNull(text, { description: 'The node that delivers it; null: none does now.' }),
  confirmedAt: time,
  failures: Type.Integer({ description: 'Attempts since then that failed.' }),
  failingSince: time,
  error: orNull(Type.Object({ reason: text, status })),
  retryAt: time,
  pausedAt: time,
  counts: Type.Object(
    { confirmed: count, failed: count },
    { description: 'Attempts of the node that answers, since it started.' },
  ),
})
const WebhookList = Type.Object({ webhooks: Type.Array(WebhookView) })
const TestResult = Type.Object({ isConfirmed: Type.Boolean(), reason: orNull(text), status })

export function webhookRoutes(webhooks: Webhooks): readonly Route[] {
  const [name] = [({ params }: Exchange): string => params[0] ?? '']
  return routes({
    'GET /v1/webhooks': {
      name: 'listWebhooks',
      summary: 'The webhooks of the configuration, and where each stands',
      operation: 'webhook.manage',
      answers: { 200: json('All of them.', WebhookList) },
      handle: async (exchange) => exchange.reply(200, { webhooks: await webhooks.views() }),
    },
    'POST /v1/webhooks/:name/resume': {
      name: 'resumeWebhook',
      summary: 'Lets a paused webhook go on where it stands, and tries one that fails now',
      operation: 'webhook.manage',
      answers: { 200: json('Where they stand then.', WebhookList) },
      refusals: [404],
      handle: async (exchange) => {
        await webhooks.resume(name(exchange))
        const views = await webhooks.views()
        exchange.reply(200, { webhooks: views.filter((view) => view.name === name(exchange)) })
      },
    },
    'POST /v1/webhooks/:name/test': {
      name: 'testWebhook',
      summary: 'Sends one event webhook.test from the node that answers',
      operation: 'webhook.manage',
      answers: { 200: json('What became of it.', TestResult) },
      refusals: [404],
      handle: async (exchange) => {
        const { isConfirmed, reason, status: answered } = await webhooks.test(name(exchange))
        exchange.reply(200, { isConfirmed, reason, status: answered })
      },
    },
  })
}
