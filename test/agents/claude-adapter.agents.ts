/** Claude Code by its ACP adapter, as an operator may configure it: what it asks, and its settings. */
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { mkdtemp, realpath, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, it } from 'vitest'
import { acpRunner, openHoldfast, type Holdfast, type SessionHandle } from 'holdfast'
import { until } from '../support/gate.ts'
import { ADAPTER, offline, programOf } from '../support/real-agents.ts'
import { StubModel } from '../support/stub-model.ts'

let folder: string
let work: string
let model: StubModel
let hold: Holdfast
let session: SessionHandle

beforeEach(async () => {
  folder = await realpath(await mkdtemp(join(tmpdir(), 'holdfast-adapter-')))
  work = join(folder, 'work')
  mkdirSync(work)
  model = await StubModel.start()
  const env = await offline(ADAPTER, join(folder, 'home'), model.url)
  const agent = acpRunner({ command: programOf(ADAPTER), env, cwd: work, folder })
  hold = await openHoldfast({ store: 'memory:', agents: { agent } })
  session = await hold.resolve()
})
afterEach(async () => {
  await hold.close()
  await model.close()
  await rm(folder, { recursive: true, force: true, maxRetries: 5 })
})

const call = (tool: string, input: object): string => `tool ${tool} ${JSON.stringify(input)}`

async function asks(count = 1): Promise<readonly any[]> {
  await until(async () => (await session.state()).asks.length === count)
  return [...(await session.state()).asks]
}

it('asks with the diff of the file, and what is allowed is done', async () => {
  const path = join(work, 'a.txt')
  writeFileSync(path, 'before\n')
  await session.turn(call('Read', { file_path: path }))
  const turn = session.turn(call('Edit', edit(path)))
  const [ask] = await asks()
  expect(ask).toMatchObject({
    kind: 'permission',
    detail: { kind: 'edit', paths: [path], diff: [{ path, before: 'before', after: 'after' }] },
  })
  expect(readFileSync(path, 'utf8')).toBe('before\n')
  await session.answer(ask.id, 'allow')
  expect((await turn).state).toBe('done')
  expect(readFileSync(path, 'utf8')).toBe('after\n')
})

const edit = (file_path: string) => ({ file_path, old_string: 'before', new_string: 'after' })

it('asks for its plan, and approving it takes the mode back', async () => {
  await session.configure({ mode: 'plan' })
  const turn = session.turn(call('ExitPlanMode', { plan: '1. Do it' }))
  const [ask] = await asks()
  expect(ask).toMatchObject({ kind: 'permission', detail: { plan: '1. Do it' } })
  const { id } = ask.options.find(({ label }: any) => /manually/.test(label))
  await session.answer(ask.id, id)
  expect((await turn).state).toBe('done')
  expect((await session.state()).settings).toEqual({ mode: 'default' })
})

it('asks questions, and gets an option or own words', async () => {
  const options = [
    { label: 'Red', description: 'warm' },
    { label: 'Blue', description: 'cold' },
  ]
  const colour = { question: 'Which colour?', header: 'Colour', multiSelect: false, options }
  const fruit = { question: 'Which fruit?', header: 'Fruit', multiSelect: false, options }
  const turn = session.turn(call('AskUserQuestion', { questions: [colour, fruit] }))
  const [first] = await asks()
  expect(first).toMatchObject({ kind: 'question', accepts: ['text'] })
  expect(first.question).toContain('Which colour?')
  await session.answer(first.id, 'Blue')
  await until(async () => (await session.state()).asks.some(({ id }) => id !== first.id))
  const [second] = await asks()
  expect(second.question).toContain('Which fruit?')
  await session.answer(second.id, { text: 'a plum' })
  expect((await turn).reply?.text).toContain('"Which colour?"="Blue", "Which fruit?"="a plum"')
})

it('cannot be steered in this release: a message for the running turn waits, and that is told', async () => {
  model.hold(0)
  const first = session.turn('first')
  await model.askedAbout('first')
  const second = await session.submit('second', { busy: 'steer' })
  expect(second).toMatchObject({ isSteered: false })
  model.letGo()
  expect((await first).reply?.text).toBe('seen 1: first')
  await until(async () => (await session.state()).running === null)
})

it('does what the mode of a turn allows without asking', async () => {
  const path = join(work, 'new.txt')
  const turn = call('Write', { file_path: path, content: 'x' })
  const { state } = await session.turn(turn, { settings: { mode: 'acceptEdits' } })
  expect([state, existsSync(path)]).toEqual(['done', true])
})

it('keeps no fork before a turn has run in it, so it is not forked', async () => {
  await session.turn('one')
  await expect(hold.fork(session.id)).rejects.toMatchObject({ code: 'capability_missing' })
  expect((await session.turn('two')).reply?.text).toBe('seen 2: two')
})
