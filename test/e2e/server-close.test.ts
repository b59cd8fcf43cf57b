/** A program that has a Holdfast of its own and closes the server before it: nothing else is closed. */
import { once } from 'node:events'
import { builtinAgents, openHoldfast, type Holdfast, type SessionHandle } from 'holdfast'
import { startServer } from 'holdfast/server'
import { afterEach, beforeEach, expect, it } from 'vitest'
import { gate, type Gate } from '../support/gate.ts'
import { dial } from '../support/wire-client.ts'

let holdfast: Holdfast
let release: Gate
let started: Gate

beforeEach(async () => {
  ;[release, started] = [gate(), gate()]
  const waits = async (): Promise<string> => {
    started.open()
    await release.opened
    return 'done'
  }
  holdfast = await openHoldfast({ store: 'memory:', agents: { ...builtinAgents, waits } })
})
afterEach(() => holdfast.close())

async function textsOf(session: SessionHandle): Promise<readonly string[]> {
  const texts: string[] = []
  for await (const { text } of session.messages()) texts.push(text)
  return texts
}

const bodyOf = async (answer: Response): Promise<any> => answer.json()

const post = (url: string, body: object): Promise<Response> =>
  fetch(`${url}/v1/keys/k/turns`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  })

it('closes the server alone: its Holdfast takes turns, also behind another server', async () => {
  const first = await startServer({ holdfast })
  expect((await post(first.url, { input: 'one' })).status).toBe(200)
  await first.close()
  await expect(fetch(first.url)).rejects.toThrow('fetch failed')
  const session = await holdfast.resolve({ key: 'k' })
  expect((await session.turn('two')).reply?.text).toBe('two')
  const second = await startServer({ holdfast })
  expect((await post(second.url, { input: 'three' })).status).toBe(200)
  expect((await fetch(`${second.url}/ready`)).status).toBe(200)
  await second.close()
  expect(await textsOf(session)).toEqual(['one', 'one', 'two', 'two', 'three', 'three'])
})

it('lets a request under way end, and begins nothing new meanwhile', async () => {
  const server = await startServer({ holdfast })
  const running = post(server.url, { agent: 'waits', input: 'x' })
  await started.opened
  const closed = server.close({ drainMs: 20_000 })
  const late = await post(server.url, { input: 'late' })
  expect([late.status, (await bodyOf(late)).code]).toEqual([503, 'draining'])
  expect((await fetch(`${server.url}/ready`)).status).toBe(503)
  const { id } = await holdfast.resolve({ key: 'k' })
  expect((await fetch(`${server.url}/v1/sessions/${id}`)).status).toBe(200)
  release.open()
  expect((await bodyOf(await running)).turn.state).toBe('done')
  await closed
})

it('cuts a request that takes longer, and its turn goes on', async () => {
  const server = await startServer({ holdfast })
  const running = post(server.url, { agent: 'waits', input: 'x' }).then(
    () => 'answered',
    () => 'cut',
  )
  await started.opened
  await server.close()
  expect(await running).toBe('cut')
  const session = await holdfast.resolve({ key: 'k' })
  release.open()
  expect((await session.turn('next')).state).toBe('done')
  expect(await textsOf(session)).toEqual(['x', 'done', 'next', 'done'])
})

it('lets attached clients come back to the next server', async () => {
  const first = await startServer({ holdfast })
  const before = dial(first.url, { key: 'k' })
  const { session, attachment, resume } = await before.frame('welcome')
  await first.close()
  expect((await before.closed).code).toBe(4503)
  const second = await startServer({ holdfast })
  const auth = { resume: { attachment, token: resume } }
  const back = dial(second.url, { session: session.id, auth })
  expect((await back.frame('welcome'))['attachment']).toBe(attachment)
  back.socket.terminate()
  await once(back.socket, 'close')
  await second.close()
})

it('tells every stream that the server stops, as on a shutdown', async () => {
  const server = await startServer({ holdfast })
  const session = await holdfast.resolve({ key: 'k' })
  const headers = { accept: 'text/event-stream' }
  const stream = await fetch(`${server.url}/v1/sessions/${session.id}/events`, { headers })
  await server.close()
  expect(await stream.text()).toContain('event: ending\ndata: {"code":"draining"}\n\n')
  expect((await session.turn('on')).state).toBe('done')
})

it('leaves the tokens of its caller open', async () => {
  let isClosed = false
  const tokens = {
    scopesOf: () => null,
    close: () => {
      isClosed = true
    },
  }
  await (await startServer({ holdfast, tokens })).close()
  expect(isClosed).toBe(false)
})

it('leaves the Holdfast open when it cannot listen', async () => {
  const server = await startServer({ holdfast })
  const { port } = server
  await expect(startServer({ holdfast, port })).rejects.toThrow('EADDRINUSE')
  await server.close()
  expect((await (await holdfast.resolve({ key: 'k' })).turn('on')).state).toBe('done')
})

it('closes the Holdfast too where it is told to', async () => {
  const server = await startServer({ holdfast })
  await server.close({ closeHoldfast: true })
  await expect(holdfast.resolve({ key: 'k' })).rejects.toThrow()
})
