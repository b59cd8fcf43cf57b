/** The reference of the command line says what the tables of flags say. */
import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { COMMANDS } from './commands.ts'
import { flagUsage, type FlagTable } from './command.ts'
import { REMOTE_FLAGS } from './remote.ts'

type Row = { readonly default: string; readonly meaning: string }

const reference = readFileSync(new URL('../../docs/reference/cli.md', import.meta.url), 'utf8')

describe('the reference', () => {
  it('shows the usage of every command', () => {
    const [, block = ''] = /```\n(.*?)```/s.exec(reference) ?? []
    const lines = COMMANDS.map(({ usage }) => `holdfast ${usage}`)
    const more = ['holdfast COMMAND --help', 'holdfast --version']
    expect(block.trimEnd().split('\n').toSorted()).toEqual([...lines, ...more].toSorted())
  })

  it.each(COMMANDS.map((command) => [command.name, command] as const))(
    'lists the flags of %s',
    (name, { flags }) => {
      const isClient = 'token-file' in flags
      const shared = isClient ? Object.keys(REMOTE_FLAGS) : []
      const own = Object.entries(flags).filter(([flag]) => !shared.includes(flag))
      expect(documented(section(name))).toEqual(rows(Object.fromEntries(own)))
    },
  )

  it('lists the flags that client commands share', () => {
    expect(documented(section('Client commands'))).toEqual(rows(REMOTE_FLAGS))
  })

  it('is caught when a row is wrong', () => {
    const text = '| `--port N` | `1` | the [port](x.md) of `--host` ([more](y.md)); any |'
    expect(documented(text)).toEqual({
      '--port N': { default: '1', meaning: 'the port of --host; any' },
    })
  })
})

function rows(flags: FlagTable): Record<string, Row> {
  return Object.fromEntries(
    Object.entries(flags).map((entry) => {
      const { defaultText, meaning } = entry[1]
      return [flagUsage(entry), { default: defaultText, meaning }]
    }),
  )
}

/** The rows of a table of flags, without links and code marks. */
function documented(markdown: string): Record<string, Row> {
  const plain = markdown
    .replaceAll(/ \(\[[^\]]*\]\([^)]*\)\)/g, '')
    .replaceAll(/\[([^\]]*)\]\([^)]*\)/g, '$1')
    .replaceAll('`', '')
  return Object.fromEntries(
    Array.from(
      plain.matchAll(/^\| (--\w.*?) +\| (.*?) *\| (.*?) +\|$/gm),
      ([, flag, text, meaning]) => [flag, { default: text ?? '', meaning: meaning ?? '' }],
    ),
  )
}

/** A section up to the next heading of any level. */
function section(title: string): string {
  const [, text = ''] =
    new RegExp(`^##+ ${title}\\b.*?$(.*?)(?=^##|(?![^]))`, 'ms').exec(reference) ?? []
  return text
}
