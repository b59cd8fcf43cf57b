/** `holdfast webhooks`: where the webhooks of a server stand, a trial of one, and going on. */
import { defineCommand, toggle, UsageError } from './command.ts'
import { isoTime, printJson, printTable, say } from './output.ts'
import { Remote, REMOTE_FLAGS } from './remote.ts'

/** As `GET /v1/webhooks` has it. */
type WebhookView = {
  readonly name: string
  readonly origin: string
  readonly state: string
  readonly node: string | null
  readonly confirmedAt: number | null
  readonly failures: number
  readonly error: { readonly reason: string; readonly status: number | null } | null
}

type TestResult = {
  readonly isConfirmed: boolean
  readonly reason: string | null
  readonly status: number | null
}

export const webhooks = defineCommand({
  name: 'webhooks',
  operands: {
    usage: 'list | test NAME | resume NAME',
    takes: 'list, test NAME or resume NAME',
    min: 1,
    max: 2,
  },
  summary:
    'Lists the webhooks of a server and where each stands, sends one a test event, or lets a ' +
    'paused one go on.',
  flags: { json: toggle('JSON, for programs'), ...REMOTE_FLAGS },
  async run({ json, ...values }, [action, name]) {
    const remote = new Remote(values)
    if (action === 'list' && name === undefined) return list(remote, json)
    if (name === undefined || (action !== 'test' && action !== 'resume')) {
      throw new UsageError('webhooks takes list, test NAME or resume NAME')
    }
    const path = `/v1/webhooks/${encodeURIComponent(name)}/${action}`
    const answer = await remote.json<TestResult>(path, 'POST', {})
    if (json) printJson([answer])
    if (action === 'resume') return json ? undefined : say(`${name} goes on`)
    if (!json) say(answer.isConfirmed ? `${name} confirmed` : `${name} failed: ${why(answer)}`)
    return answer.isConfirmed ? 0 : 1
  },
})

async function list(remote: Remote, json: boolean): Promise<void> {
  const { webhooks: all } = await remote.json<{ webhooks: readonly WebhookView[] }>('/v1/webhooks')
  if (json) return printJson(all)
  if (all.length === 0) return say('there are no webhooks')
  printTable(all, {
    NAME: ({ name }) => name,
    STATE: ({ state }) => state,
    TO: ({ origin }) => origin,
    CONFIRMED: ({ confirmedAt }) => (confirmedAt === null ? 'never' : isoTime(confirmedAt)),
    FAILURES: ({ failures }) => failures,
    ERROR: ({ error }) => (error === null ? '' : why(error)),
  })
}

function why({ reason, status }: Pick<TestResult, 'reason' | 'status'>): string {
  return status === null ? `${reason}` : `${reason} ${status}`
}
