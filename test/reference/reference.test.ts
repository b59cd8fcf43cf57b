/** The reference says what the schemas say. `npm run reference` brings it up to date. */
import { readFileSync } from 'node:fs'
import { Type } from '../../src/schema/typebox.ts'
import { Value } from '../support/typebox-value.ts'
import { describe, expect, it } from 'vitest'
import { checkConfig } from '../../src/config/index.ts'
import { ACP_METHODS } from '../../src/doors/acp/methods.ts'
import { HANDLERS } from '../../src/doors/acp/requests.ts'
import { CONFIG_SCHEMA } from '../../src/config/schema.ts'
import { EVENT_TYPES } from '../../src/core/index.ts'
import { CONFIG_SCHEMA_FILE, configSchema, PAGES, unaligned, withTables } from './pages.ts'

const read = (file: string): string =>
  readFileSync(new URL(`../../${file}`, import.meta.url), 'utf8')

describe('the reference', () => {
  it.each(PAGES)('has the fields of the schemas in %s', (page) => {
    expect(unaligned(withTables(read(page)))).toBe(unaligned(read(page)))
    expect(read(page)).toMatch(/<!-- (fields|metrics): /)
  })

  it('is found to differ from the code when a method is missing, or called otherwise', () => {
    const page = read('docs/reference/copilot.md')
    for (const wrong of [
      page.replace(/^\| `session.send` .*\n/m, ''),
      page.replace('`ping`', '`pong`'),
    ]) {
      expect(unaligned(withTables(wrong))).not.toBe(unaligned(wrong))
    }
  })

  it('is made from the schemas, with what is required and what is the default', () => {
    const schema = Type.Object({
      a: Type.String({ description: 'one' }),
      b: Type.Optional(Type.Integer({ default: 3, description: 'two' })),
    })
    const page = 'x\n\n<!-- fields: T -->\n\n| Field | old |\n| --- | --- |\n\nafter\n'
    expect(withTables(page, { T: schema }).split('\n').slice(4, 8)).toEqual([
      '| Field | Default | Meaning |',
      '| --- | --- | --- |',
      '| `a` | required | one |',
      '| `b` | `3` | two |',
    ])
  })
})

describe('the methods of ACP', () => {
  const schema = JSON.parse(read('node_modules/@agentclientprotocol/sdk/schema/v1/schema.json'))
  const known = new Set<string>(
    Object.values<any>(schema.$defs).flatMap((type) => type['x-method'] ?? []),
  )

  it('are those of the protocol’s own schema, and ours', () => {
    const own = Object.keys(ACP_METHODS).filter((method) => !method.startsWith('_holdfast/'))
    expect(own.toSorted()).toEqual([...known].toSorted())
  })

  it('are called by the end that the schema says', () => {
    for (const type of Object.values<any>(schema.$defs)) {
      const { caller } = ACP_METHODS[type['x-method'] as keyof typeof ACP_METHODS] ?? {}
      if (caller === undefined) continue
      const expected = { agent: 'client', client: 'agent', protocol: 'either' }
      expect([type['x-method'], caller]).toEqual([
        type['x-method'],
        expected[type['x-side'] as 'agent' | 'client' | 'protocol'],
      ])
    }
  })

  it('are served if the table says so, and no others', () => {
    const served = Object.entries<{ caller: string; isSupported: boolean }>(ACP_METHODS)
      .filter(
        ([method, { caller, isSupported }]) => isSupported && caller === 'client' && method !== '',
      )
      .map(([method]) => method)
    expect(Object.keys(HANDLERS).toSorted()).toEqual(served.toSorted())
  })
})

describe('the events of a log', () => {
  it('are all in the table of the reference', () => {
    const lines = read('docs/reference/http.md').split('\n')
    const first = lines.findIndex((line) => line.includes('`session.created`, '))
    const rows = lines.slice(first, lines.indexOf('', first)).map((row) => row.split('|')[1] ?? '')
    const named = rows.flatMap((cell) => {
      const names = Array.from(cell.matchAll(/`([\w.]+)`/g), ([, name = '']) => name)
      const [group] = names[0]?.split('.') ?? []
      return names.map((name) => (name.startsWith('.') ? `${group}${name}` : name))
    })
    expect(named.toSorted()).toEqual(Object.keys(EVENT_TYPES).toSorted())
  })
})

describe('the JSON Schema of the configuration', () => {
  it('is in the package', () => {
    expect(JSON.parse(read(CONFIG_SCHEMA_FILE))).toEqual(JSON.parse(configSchema()))
  })

  it('accepts the examples of the reference, as the server does', () => {
    const page = read('docs/reference/config.md')
    const examples = Array.from(page.matchAll(/^```json\n(.*?)^```/gms), ([, text = '']) => {
      return JSON.parse(text) as unknown
    })
    expect(examples.length).toBeGreaterThanOrEqual(5)
    for (const example of examples) {
      expect([...Value.Errors(CONFIG_SCHEMA, example)]).toEqual([])
      expect(() => checkConfig(example)).not.toThrow()
    }
  })
})
