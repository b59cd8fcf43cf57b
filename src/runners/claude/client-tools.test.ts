import { expect, it } from 'vitest'
import type { AskOutcome, RunnerContext } from '../../core/index.ts'
import { failed, serverAnswer, toolResult } from './client-tools.ts'

const context = { session: { key: 'k', id: 's' } } as RunnerContext
const words = (...texts: string[]) => texts.map((text) => ({ type: 'text', text }))

it.each<[string, unknown, object]>([
  ['words', { result: 'sunny' }, { content: words('sunny') }],
  ['words alone, as by HTTP', 'sunny', { content: words('sunny') }],
  ['any JSON', { result: { a: 1 } }, { content: words('{"a":1}') }],
  ['nothing', { result: null }, { content: words('""') }],
  ['an error', { error: 'no' }, { content: words('no'), isError: true }],
  [
    'a result of the SDK',
    { result: { textResultForLlm: 'x', resultType: 'failure' } },
    { content: words('x'), isError: true },
  ],
  [
    'a result with an image',
    {
      result: {
        textResultForLlm: 'x',
        binaryResultsForLlm: [{ type: 'image', data: 'AA==', mimeType: 'image/png' }, 7],
      },
    },
    {
      content: [...words('x'), { type: 'image', data: 'AA==', mimeType: 'image/png' }],
      isError: false,
    },
  ],
])('tells a tool’s answer that is %s', (_, answer, result) => {
  const outcome = { outcome: 'answered', answer } as AskOutcome
  expect(toolResult(outcome, context)).toEqual(result)
})

it('tells that nobody has answered', () => {
  const outcome = { outcome: 'nobody_to_ask' } as AskOutcome
  expect(toolResult(outcome, context)).toMatchObject({ isError: true })
})

it('answers the methods of a server with tools, and no others', async () => {
  const parameters = { type: 'string', properties: {} }
  const tool = { name: 'weather', description: 'd', parameters, skipPermission: false }
  const ask = (method: string, params: object = {}): Promise<any> =>
    serverAnswer({ id: 7, method, params }, [tool], async (name) => failed(`of ${name}`))
  expect(await ask('initialize', { protocolVersion: '1' })).toMatchObject({
    result: { protocolVersion: '1', capabilities: { tools: {} } },
  })
  expect((await ask('tools/list')).result.tools).toEqual([
    { name: 'weather', description: 'd', inputSchema: { type: 'object', properties: {} } },
  ])
  const called = await ask('tools/call', { name: 'weather', arguments: 7 })
  expect(called).toEqual({ jsonrpc: '2.0', id: 7, result: failed('of weather') })
  expect((await ask('resources/list')).error.code).toBe(-32_601)
})
