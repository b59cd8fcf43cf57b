import { join } from 'node:path'
import { tmpdir } from 'node:os'
import { describe, expect, it } from 'vitest'
import { claudeRunner } from './claude/index.ts'
import { codexRunner } from './codex/index.ts'
import { processRunner } from './process/index.ts'

const folder = join(tmpdir(), 'holdfast-terminal')
const backend = '0b9c1c5e-5b7e-4b0c-9f4e-2d1f3f5f7a11'
const session = { id: 's', backend, origin: null }

describe("the command that continues a session in the agent's own program", () => {
  it.each([
    ['claude', claudeRunner({ command: 'claude', folder }), ['claude', '--resume', backend]],
    [
      'codex',
      codexRunner({ command: 'codex', folder }),
      ['codex', 'resume', '--no-daemon', backend],
    ],
  ])('of %s names the conversation, and the folder that it works in', (_, runner, command) => {
    const own = runner.terminal?.(session, {})
    expect(own).toEqual({ command, cwd: expect.stringContaining(`${folder}/`) })
    expect(runner.terminal?.(session, { cwd: '/srv/app' })).toEqual({ command, cwd: '/srv/app' })
    const origin = { backend, position: { cwd: '/srv/source' } } as never
    expect(runner.terminal?.({ ...session, origin }, {})?.cwd).toBe('/srv/source')
  })

  it('is none where that program would not find it, or read its id as a flag', () => {
    const sandboxed = claudeRunner({ command: 'claude', folder, wrap: ['env', 'HOME={home}'] })
    expect(sandboxed.terminal?.(session, {})).toBeNull()
    const text = processRunner({ command: 'sh', folder, output: 'text' })
    expect(text.terminal?.(session, {})).toBeNull()
    const claude = claudeRunner({ command: 'claude', folder })
    expect(claude.terminal?.({ ...session, backend: '--help' }, {})).toBeNull()
  })
})
