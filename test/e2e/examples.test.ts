/** The examples run as they stand, and the README shows the first of them word for word. */
import { execFile } from 'node:child_process'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { describe, expect, it } from 'vitest'

const run = promisify(execFile)

async function example(name: string, ...args: string[]): Promise<string[]> {
  const { stdout } = await run(process.execPath, [`examples/${name}`, ...args])
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

  it('parrot.mjs is the code of the README', async () => {
    const readme = await readFile('README.md', 'utf8')
    const code = (await readFile('examples/parrot.mjs', 'utf8')).split('\n').slice(1).join('\n')
    expect(readme).toContain(`\`\`\`js\n${code}\`\`\``)
  })
})
