/**
 * A tiny agent on the protocol's own library, for what no real agent does on request. The prompt's
 * first word says what it does; it counts the prompts of a session, so that lost context shows.
 * KEEP: a folder where sessions are kept. RESTORE: `load`, `late` (it says that a session is loaded
 * before it has said all again), `resume` or nothing. START: how it fails. OFFERS: with modes, models,
 * instructions, images, steering and forks; `unkept forks`: those are lost with their process.
 * LISTED: the session that it tells the folder of; `endless`: of none, on pages without an end.
 */
import {
  appendFileSync,
  existsSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { Readable, Writable } from 'node:stream'
import { agent, ndJsonStream, PROTOCOL_VERSION, RequestError } from '@agentclientprotocol/sdk'

const { KEEP = '', RESTORE = '', START = '', ASKED = '', OFFERS = '', LISTED = '' } = process.env
const never = new Promise(() => {})
/** What it was told that its client can do. */
let told = {}
/** By session: the prompts so far, and how to cancel the one that runs. */
const sessions = new Map()

const file = (id) => join(KEEP, `${id}.json`)
/** All or nothing: it may be killed at any moment. */
const keep = (id) => {
  if (KEEP === '') return
  writeFileSync(`${file(id)}.new`, JSON.stringify(sessions.get(id).texts))
  renameSync(`${file(id)}.new`, file(id))
}

if (START === 'exit') {
  process.stderr.write('fatal: no configuration\n')
  process.exit(4)
}
if (START === 'noise') process.stdout.write('hello, I am a log line\n')
process.stderr.write(`started ${process.pid}\n`)
// How often it was started, and as what.
if (KEEP !== '') appendFileSync(join(KEEP, 'starts'), `${process.pid}\n`)
if (KEEP !== '') appendFileSync(join(KEEP, 'log'), `here ${process.pid}\n`)

function find(id, params) {
  if (!existsSync(file(id))) throw RequestError.sessionNotFound(id)
  sessions.set(id, { texts: JSON.parse(readFileSync(file(id), 'utf8')), cancel: () => {}, params })
}

/** What a session can be set to. */
function offers() {
  if (OFFERS === '') return {}
  const modes = ['ask', 'plan', 'bypassPermissions'].map((id) => ({ id, name: id }))
  const options = ['small', 'large'].map((value) => ({ value, name: value }))
  const model = { id: 'llm', name: 'Model', category: 'model', type: 'select', options }
  return {
    modes: { currentModeId: 'ask', availableModes: modes },
    configOptions: [{ ...model, currentValue: 'small' }],
  }
}

function offerCommands(client, sessionId) {
  const availableCommands = [{ name: 'web', description: 'search the web', input: null }]
  return tell(client, sessionId, { sessionUpdate: 'available_commands_update', availableCommands })
}

/** As `count` answered it. */
async function replay(client, sessionId) {
  for (const [index, text] of sessions.get(sessionId).texts.entries()) {
    if (RESTORE === 'late') await new Promise((resolve) => setTimeout(resolve, 20))
    await tell(client, sessionId, {
      sessionUpdate: 'user_message_chunk',
      content: { type: 'text', text },
    })
    await say(client, sessionId, `REPLAYED `)
    await say(client, sessionId, `${index + 1} ${text}`)
  }
}

const app = agent({ name: 'tiny' })
  .onRequest('initialize', ({ params }) => {
    told = params.clientCapabilities
    return START === 'hang'
      ? never
      : {
          protocolVersion: START === 'version' ? 99 : PROTOCOL_VERSION,
          agentCapabilities: {
            loadSession: RESTORE === 'load' || RESTORE === 'late',
            sessionCapabilities: {
              ...(RESTORE === 'resume' ? { resume: {}, close: {} } : {}),
              ...(OFFERS === ''
                ? {}
                : { fork: {}, delete: {}, additionalDirectories: {}, systemPrompt: {} }),
              ...(LISTED === '' ? {} : { list: {} }),
            },
            ...(OFFERS === '' ? {} : { promptCapabilities: { image: true } }),
          },
          ...(OFFERS === '' ? {} : { _meta: { steering: { supported: true } } }),
          authMethods: [{ id: 'login', name: 'Log in', description: 'run `tiny login`' }],
        }
  })
  .onRequest('session/new', ({ params, client }) => {
    if (START === 'login') throw RequestError.authRequired()
    const id = `tiny-${process.pid}-${sessions.size}`
    sessions.set(id, { texts: [], cancel: () => {}, cwd: params.cwd, params })
    if (OFFERS !== '') setImmediate(() => void offerCommands(client, id))
    return { sessionId: id, ...offers() }
  })
  .onRequest('session/set_mode', ({ params }) => {
    sessions.get(params.sessionId).mode = params.modeId
    return {}
  })
  .onRequest('session/set_config_option', ({ params }) => {
    sessions.get(params.sessionId).model = params.value
    return { configOptions: offers().configOptions }
  })
  .onRequest(
    'session/fork',
    (value) => value,
    ({ params }) => {
      const id = `${params.sessionId}-fork`
      find(params.sessionId, params)
      const { texts } = sessions.get(params.sessionId)
      sessions.set(id, { texts: [...texts], cancel: () => {}, params })
      if (OFFERS !== 'unkept forks') keep(id)
      return { sessionId: id }
    },
  )
  .onRequest(
    '_session/steering',
    (value) => value,
    ({ params }) => {
      const session = sessions.get(params.sessionId)
      if (session.steer === undefined) return { outcome: 'promptRequired', reason: 'noRunningTurn' }
      session.steer(params.prompt[0].text)
      return { outcome: 'injected' }
    },
  )
  .onRequest(
    'session/list',
    (value) => value,
    ({ params }) =>
      params.cursor === undefined || LISTED === 'endless'
        ? { sessions: [{ sessionId: 'another', cwd: '/' }], nextCursor: 'more' }
        : { sessions: [{ sessionId: LISTED, cwd: KEEP }] },
  )
  .onRequest('session/load', async ({ params, client }) => {
    find(params.sessionId, params)
    if (RESTORE === 'late') void replay(client, params.sessionId)
    else await replay(client, params.sessionId)
    return offers()
  })
  // As it was sent: the library would drop what is not in its version of the protocol.
  .onRequest(
    'session/resume',
    (value) => value,
    ({ params }) => {
      find(params.sessionId, params)
      return offers()
    },
  )
  .onRequest('session/delete', ({ params }) => {
    if (!existsSync(file(params.sessionId))) throw RequestError.sessionNotFound(params.sessionId)
    rmSync(file(params.sessionId))
    return {}
  })
  .onRequest('session/close', ({ params }) => {
    sessions.delete(params.sessionId)
    return {}
  })
  .onNotification('session/cancel', ({ params }) => sessions.get(params.sessionId)?.cancel())
  .onRequest('session/prompt', async ({ params, client }) => {
    const { sessionId, prompt } = params
    const session = sessions.get(sessionId)
    if (session === undefined) throw RequestError.sessionNotFound(sessionId)
    const [{ text }] = prompt
    session.texts.push(text)
    keep(sessionId)
    const cancelled = new Promise((resolve) => {
      session.cancel = () => resolve({ stopReason: 'cancelled' })
    })
    const [word, ...rest] = text.split(' ')
    const name = Object.hasOwn(ACTS, word) ? word : 'count'
    const answer = await ACTS[name]({ client, sessionId, session, cancelled, rest: rest.join(' ') })
    return answer ?? { stopReason: 'end_turn' }
  })

const say = (client, sessionId, text, more = {}) =>
  client.notify('session/update', {
    sessionId,
    update: { sessionUpdate: 'agent_message_chunk', content: { type: 'text', text }, ...more },
  })
const tell = (client, sessionId, update) => client.notify('session/update', { sessionId, update })

/** Writes directly after the response, in the same turn of the event loop. */
const afterwards = (act) => {
  const write = process.stdout.write.bind(process.stdout)
  process.stdout.write = (chunk, ...rest) => {
    const isResponse = String(chunk).includes('stopReason')
    if (isResponse) process.stdout.write = write
    if (isResponse) void act()
    return write(chunk, ...rest)
  }
}

const ACTS = {
  async count({ client, sessionId, session }) {
    await say(client, sessionId, `${session.texts.length} `)
    await say(client, sessionId, session.texts.at(-1))
  },
  async where({ client, sessionId, session }) {
    await say(client, sessionId, `${process.pid} ${session.cwd}`)
  },
  /** What it was opened and set to. */
  async settings({ client, sessionId, session }) {
    const { mode = 'ask', model = 'small', params } = session
    const { cwd, additionalDirectories, mcpServers, systemPrompt } = params
    const opened = { cwd, additionalDirectories, mcpServers, systemPrompt }
    await say(client, sessionId, JSON.stringify({ mode, model, ...opened }))
  },
  /** Leaves its mode by itself. */
  async leave({ client, sessionId, session, rest }) {
    session.mode = rest
    await tell(client, sessionId, { sessionUpdate: 'current_mode_update', currentModeId: rest })
  },
  async steered({ client, sessionId, session }) {
    await say(client, sessionId, 'waiting ')
    const text = await new Promise((resolve) => {
      session.steer = resolve
    })
    session.steer = undefined
    await say(client, sessionId, text)
  },
  async form({ client, sessionId }) {
    const colour = { type: 'string', title: 'Colour', oneOf: [{ const: 'r', title: 'Red' }] }
    const answer = await client.request('elicitation/create', {
      ...{ sessionId, mode: 'form', message: 'Choose' },
      requestedSchema: { type: 'object', properties: { colour }, required: ['colour'] },
    })
    await say(client, sessionId, JSON.stringify(answer))
  },
  async grow({ client, sessionId }) {
    const call = { sessionUpdate: 'tool_call', toolCallId: 'g', title: 'Write', rawInput: {} }
    await tell(client, sessionId, call)
    const content = [{ type: 'diff', path: '/w/a', oldText: null, newText: 'x' }]
    const more = { rawInput: { file_path: '/w/a' }, kind: 'edit', content }
    await tell(client, sessionId, { ...call, sessionUpdate: 'tool_call_update', ...more })
    const options = [{ optionId: 'yes', name: 'Allow', kind: 'allow_once' }]
    const toolCall = { toolCallId: 'g' }
    await client.request('session/request_permission', { sessionId, toolCall, options })
  },
  async told({ client, sessionId }) {
    const { fs, terminal } = told
    await say(client, sessionId, JSON.stringify({ ...fs, terminal }))
  },
  /** Asks its client: a method, and its parameters as JSON. */
  async client({ client, sessionId, rest }) {
    const [, method, params] = /^(\S+) (.*)$/.exec(rest)
    try {
      const answer = await client.request(method, { sessionId, ...JSON.parse(params) })
      await say(client, sessionId, JSON.stringify(answer))
    } catch ({ code, message, data }) {
      await say(client, sessionId, JSON.stringify({ code, message, data }))
    }
  },
  async env({ client, sessionId, rest }) {
    await say(client, sessionId, String(process.env[rest]))
  },
  async work({ client, sessionId }) {
    await tell(client, sessionId, {
      sessionUpdate: 'agent_thought_chunk',
      content: { type: 'text', text: 'hm, ' },
    })
    await tell(client, sessionId, {
      sessionUpdate: 'agent_thought_chunk',
      content: { type: 'text', text: 'so' },
    })
    await tell(client, sessionId, {
      sessionUpdate: 'plan',
      entries: [{ content: 'look', priority: 'high', status: 'pending' }],
    })
    await say(client, sessionId, 'I look. ')
    const toolCallId = 'call-1'
    await tell(client, sessionId, {
      sessionUpdate: 'tool_call',
      toolCallId,
      title: 'grep',
      kind: 'search',
      status: 'pending',
      rawInput: { pattern: 'x' },
    })
    await tell(client, sessionId, {
      sessionUpdate: 'tool_call_update',
      toolCallId,
      status: 'in_progress',
    })
    await tell(client, sessionId, {
      sessionUpdate: 'tool_call_update',
      toolCallId,
      status: 'completed',
      rawOutput: { matches: 2 },
    })
    await tell(client, sessionId, { sessionUpdate: 'usage_update', used: 10, size: 100 })
    await tell(client, sessionId, { sessionUpdate: 'a_kind_of_tomorrow', thing: 1 })
    await say(client, sessionId, 'Two.')
    return { stopReason: 'max_tokens', usage: { inputTokens: 7, outputTokens: 2, totalTokens: 9 } }
  },
  async die({ client, sessionId, rest }) {
    await say(client, sessionId, 'about to')
    process.stderr.write(`fatal: ${rest}\n`)
    process.exit(3)
  },
  dieSilent: () => process.exit(3),
  async hang({ client, sessionId, cancelled }) {
    await say(client, sessionId, 'hanging')
    return cancelled
  },
  async deaf({ client, sessionId }) {
    await say(client, sessionId, 'deaf')
    return never
  },
  async ask({ client, sessionId, rest, cancelled }) {
    const { outcome } = await client.request('session/request_permission', {
      sessionId,
      toolCall: { toolCallId: 'call-2', title: rest, kind: 'execute', rawInput: { command: rest } },
      options: [
        { optionId: 'yes', name: 'Allow', kind: 'allow_once' },
        { optionId: 'no', name: 'Reject', kind: 'reject_once' },
      ],
    })
    if (ASKED !== '') appendFileSync(ASKED, `${JSON.stringify(outcome)}\n`)
    await say(client, sessionId, JSON.stringify(outcome))
    return Promise.race([cancelled, Promise.resolve()])
  },
  /** Asks what may be allowed always, and takes a message meanwhile. */
  async always({ client, sessionId, session, rest, cancelled }) {
    const message = new Promise((resolve) => {
      session.steer = resolve
    })
    const { outcome } = await client.request('session/request_permission', {
      sessionId,
      toolCall: { toolCallId: 'call-3', title: rest, kind: 'execute', rawInput: { command: rest } },
      options: [
        { optionId: 'yes', name: 'Allow', kind: 'allow_once' },
        { optionId: 'always', name: 'Always allow', kind: 'allow_always' },
      ],
    })
    const isAnswered = outcome.outcome !== 'cancelled'
    const words = isAnswered ? '' : await Promise.race([message, cancelled])
    session.steer = undefined
    if (typeof words !== 'string') return words
    await say(client, sessionId, `${JSON.stringify(outcome)} ${words}`)
  },
  async late({ client, sessionId }) {
    await say(client, sessionId, 'in time')
    afterwards(() => say(client, sessionId, 'TOO LATE'))
  },
  async lateAsk({ client, sessionId, session }) {
    setImmediate(
      () => void ACTS.ask({ client, sessionId, session, rest: 'late', cancelled: never }),
    )
    await say(client, sessionId, 'in time')
  },
  async flood({ client, sessionId, rest }) {
    for (let n = 0; n < Number(rest); n += 1) await say(client, sessionId, 'x'.repeat(1_000))
  },
  async huge({ client, sessionId }) {
    await say(client, sessionId, 'x'.repeat(9_000_000))
    return never
  },
  async burst({ client, sessionId, rest }) {
    for (let n = 1; n <= Number(rest); n += 1) void say(client, sessionId, `${n} `)
  },
  async wild({ client, sessionId }) {
    process.stdout.write(
      'a stray log line\n[1,2]\n"text"\n{"jsonrpc":"2.0","id":999,"result":{}}\n',
    )
    await client.notify('session/update', { sessionId, update: { sessionUpdate: 7 } })
    await client.notify('session/update', null)
    const denied = await client
      .request('fs/read_text_file', { sessionId, path: '/etc/passwd' })
      .catch((error) => error.code)
    await say(client, sessionId, String(denied))
  },
  forget({ sessionId }) {
    sessions.delete(sessionId)
    throw RequestError.sessionNotFound(sessionId)
  },
  refuse() {
    throw RequestError.internalError({ details: 'the model is not there' })
  },
  async quit({ client, sessionId }) {
    await say(client, sessionId, 'no')
    return { stopReason: 'cancelled' }
  },
}

app.connect(ndJsonStream(Writable.toWeb(process.stdout), Readable.toWeb(process.stdin)))
// One that takes its time to leave, and says when it has.
process.on('SIGTERM', () => {})
process.stdin.on('end', () =>
  setTimeout(() => process.exit(), Number(process.env['LEAVE_MS'] ?? 0)),
)
process.on('exit', () => KEEP !== '' && appendFileSync(join(KEEP, 'log'), `gone ${process.pid}\n`))
