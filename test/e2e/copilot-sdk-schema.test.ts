/** The tables of the Copilot door, and its framing, compared with the SDK that they are for. */
import { PassThrough } from 'node:stream'
import { describe, expect, it } from 'vitest'
import { CreateParams, REFUSED_FIELDS } from '../../src/doors/copilot/creation.ts'
import { COPILOT_EVENTS } from '../../src/doors/copilot/event-table.ts'
import { FrameReader, frameOf } from '../../src/doors/copilot/framing.ts'
import { PROTOCOL_VERSION } from '../../src/doors/copilot/messages.ts'
import { CONNECT, METHODS } from '../../src/doors/copilot/methods.ts'
import { until } from '../support/gate.ts'
import { importSdk, sdkFile } from '../support/copilot-sdk.ts'

/** Methods that the SDK calls, in its generated schema or by hand. */
function methodsOfSdk(): ReadonlySet<string> {
  const sources = ['generated/rpc.js', 'client.js', 'session.js'].map((file) =>
    sdkFile(`dist/${file}`),
  )
  const calls = sources.flatMap((source) => [...source.matchAll(/sendRequest\(\s*"([\w.]+)"/g)])
  return new Set(calls.map(([, method = '']) => method))
}

describe('the tables of the Copilot door', () => {
  it('have methods that the SDK calls, and the one that older SDKs do', () => {
    const known = methodsOfSdk()
    expect(known.size).toBeGreaterThan(200)
    const own = [CONNECT, ...Object.keys(METHODS)].filter((method) => !known.has(method))
    expect(own).toEqual(['session.destroy'])
  })

  it('support every method that the SDK calls by hand for its users', () => {
    const source = sdkFile('dist/client.js') + sdkFile('dist/session.js')
    const calls = [...source.matchAll(/sendRequest\(\s*"([\w.]+)"/g)].map(
      ([, method = '']) => method,
    )
    const missing = [...new Set(calls)].filter((method) => !Object.hasOwn(METHODS, method))
    // Of the terminal of GitHub's runtime, and of what is plugged into it.
    expect(missing.toSorted()).toEqual([
      'llmInference.setProvider',
      'plugins.builtin.set',
      'session.getForeground',
      'session.setForeground',
      'sessionFs.setProvider',
    ])
  })

  it('have events that the SDK knows, with its word on which are not kept', () => {
    const types = sdkFile('dist/generated/session-events.d.ts')
    for (const [type, { isEphemeral }] of Object.entries(COPILOT_EVENTS)) {
      const end = types.indexOf(`type: "${type}";`)
      expect([type, end > 0]).toEqual([type, true])
      const declaration = types.slice(types.lastIndexOf('export interface', end), end)
      // What must be transient is, and what must not be is not.
      if (/ephemeral: true;/.test(declaration)) expect([type, isEphemeral]).toEqual([type, true])
      if (!/ephemeral/.test(declaration)) expect([type, isEphemeral]).toEqual([type, false])
    }
  })

  it('have fields that the SDK sends', () => {
    const source = sdkFile('dist/client.js')
    const create = source.slice(
      source.indexOf('"session.create"'),
      source.indexOf('"session.resume"'),
    )
    for (const field of [...Object.keys(CreateParams.properties), ...Object.keys(REFUSED_FIELDS)]) {
      expect([field, new RegExp(`\\b${field}:`).test(create)]).toEqual([field, true])
    }
  })

  it('are of the protocol version of the SDK', async () => {
    expect(sdkFile('dist/sdkProtocolVersion.js')).toContain(
      `SDK_PROTOCOL_VERSION = ${PROTOCOL_VERSION}`,
    )
  })
})

describe('the framing', () => {
  const messages = ['{}', '{"text":"häß 🙂"}', `{"x":"${'y'.repeat(70_000)}"}`].map((text) => ({
    jsonrpc: '2.0',
    method: 'any',
    params: JSON.parse(text) as object,
  }))

  it('is read by the library of the SDK as it was written', async () => {
    const { StreamMessageReader } = await importSdk('vscode-jsonrpc/node')
    const stream = new PassThrough()
    const read: unknown[] = []
    const all = new Promise<void>((resolve) => {
      new StreamMessageReader(stream).listen((message: unknown) => {
        if (read.push(message) === messages.length) resolve()
      })
    })
    for (const message of messages) {
      for (const part of frameOf(Buffer.from(JSON.stringify(message)))) stream.write(part)
    }
    await all
    expect(read).toEqual(messages)
    stream.destroy()
  })

  it('reads what the library of the SDK writes', async () => {
    const { StreamMessageWriter } = await importSdk('vscode-jsonrpc/node')
    const stream = new PassThrough()
    const reader = new FrameReader(() => 1_000_000)
    const read: unknown[] = []
    stream.on('data', (chunk: Buffer) => {
      for (const text of reader.push(chunk)) read.push(JSON.parse(text))
    })
    const writer = new StreamMessageWriter(stream)
    for (const message of messages) await writer.write(message)
    await until(() => read.length === messages.length)
    expect(read).toEqual(messages)
    stream.destroy()
  })
})
