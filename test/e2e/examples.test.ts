/** The examples and the README's tour run as they stand. */
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { runGuarded } from '../support/guarded.ts'
import { serve } from '../support/server.ts'

const LIMIT = { limitMs: 100_000 }

async function example(name: string, ...args: string[]): Promise<string[]> {
  const { stdout } = await runGuarded(process.execPath, [`examples/${name}`, ...args], LIMIT)
  return stdout.trimEnd().split('\n')
}

describe('the examples', () => {
  it('parrot.mjs answers each caller with its own words', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'holdfast-example-'))
    const lines = await example('parrot.mjs', join(folder, 'parrot.db'))
    await rm(folder, { recursive: true })
    expect(lines[0]).toBe('hello there  | and again ')
    // In as many parts as there was time for, and nothing twice.
    const parts = lines.slice(
      1,
      lines.findIndex((line) => line.startsWith('user: ')),
    )
    expect(parts.map((part) => part.trim()).join(' ')).toBe('word by word')
    expect(lines.filter((line) => line.startsWith('user: '))).toHaveLength(3)
    expect(lines.filter((line) => line.startsWith('assistant: '))).toHaveLength(3)
  })

  it('permission.mjs is refused alone and allowed with a client', async () => {
    const lines = await example('permission.mjs')
    expect(lines).toEqual(['left alone: nobody_to_ask', 'deleted notes.txt'])
  })

  it('mounted.mjs and mounted-express.mjs serve Holdfast beside a page of their own', async () => {
    const lines = ['my own page', 'you said: hello']
    expect(await example('mounted.mjs')).toEqual([...lines, 'you said: hello again'])
    expect(await example('mounted-express.mjs')).toEqual(lines)
  })

  it('parrot.mjs is the code of the README', async () => {
    const readme = await readFile('README.md', 'utf8')
    const code = (await readFile('examples/parrot.mjs', 'utf8')).split('\n').slice(1).join('\n')
    expect(readme).toContain(`\`\`\`js\n${code}\`\`\``)
  })

  it('the curl tour of the README goes through, as often as one likes', async () => {
    const readme = await readFile('README.md', 'utf8')
    const tour = /```sh\n(# The key names[\s\S]*?)```/.exec(readme)?.[1] ?? ''
    const server = await serve()
    const script = tour.replaceAll('localhost:7420', server.url.replace('http://', ''))
    for (const rounds of [1, 2]) {
      const { stdout } = await runGuarded('bash', ['-euo', 'pipefail', '-c', script], LIMIT)
      expect(stdout).toContain('"code":"session_busy"')
      expect(stdout).toContain('"content":"hello again"')
      expect(stdout.match(/"text":"I may not: denied"/g)?.length).toBeGreaterThanOrEqual(rounds)
    }
    const { sessions } = await server.holdfast.list()
    const states = await Promise.all(sessions.map(({ id }) => server.holdfast.session(id).state()))
    expect(states.filter(({ running, queued }) => running !== null || queued.length > 0)).toEqual(
      [],
    )
    await server.close()
  }, 240_000)
})
