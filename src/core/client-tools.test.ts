import { expect, it } from 'vitest'
import { calledTool, ClientTools, toolKind, type ClientTool } from './client-tools.ts'

const tool = (name: string, description: string, skipPermission = false): ClientTool => ({
  ...{ name, description, skipPermission },
  parameters: {},
})

it('has the tools of the clients that are there, each name as the last one has it', () => {
  const tools = new ClientTools()
  const first = tools.add('s', [tool('a', 'of one', true), tool('b', 'of one', true)])
  const second = tools.add('s', [tool('a', 'of two')])
  tools.add('other', [tool('c', 'elsewhere')])
  // Either may be called: a permission is left out only if all clients want that.
  expect(tools.of('s')).toEqual([tool('a', 'of two'), tool('b', 'of one', true)])
  first()
  expect(tools.of('s')).toEqual([tool('a', 'of two')])
  second()
  second()
  expect(tools.of('s')).toEqual([])
})

it('knows the asks that call a tool', () => {
  expect([toolKind('a'), 'permission'].map(calledTool)).toEqual(['a', null])
})
