/** Files of conversations, in folders that an agent writes to. */
import { execFileSync } from 'node:child_process'
import { appendFile, mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import type { Workplace } from '../platform/child.ts'
import { adoptFrom } from './adopting.ts'
import { findForked } from './claude/start.ts'
import { claudeConversation } from './claude/transcript.ts'
import { CLAUDE_FILES } from './conversation-files.ts'
import { OutsideMessages } from './outside-messages.ts'

const backend = '01a1ef99-b609-7912-949a-daf047f6108b'
const line = (uuid: string, content: string): string =>
  `${JSON.stringify({ type: 'user', uuid, cwd: '/work', message: { role: 'user', content } })}\n`

let root: string
let log: string
let env: Record<string, string>
let workplace: Workplace

beforeEach(async () => {
  root = await mkdtemp(join(tmpdir(), 'holdfast-outside-'))
  const project = join(root, 'agent', 'projects', '-work')
  await mkdir(project, { recursive: true })
  log = join(project, `${backend}.jsonl`)
  env = { CLAUDE_CONFIG_DIR: join(root, 'agent') }
  const fake = { hasOwnHome: false, environment: () => env, environmentOf: () => env }
  workplace = fake as unknown as Workplace
})
afterEach(() => rm(root, { recursive: true }))

const since = (bytes: number, own: readonly string[] = []) =>
  new OutsideMessages(workplace, CLAUDE_FILES).since(
    { id: 's', backend },
    { position: { bytes, own }, inputs: [] },
  )
const adopted = () => adoptFrom({ workplace, files: CLAUDE_FILES }, backend, claudeConversation)

describe('the file of a conversation', () => {
  it('is read from the position on, without the inputs that are ours', async () => {
    await writeFile(log, line('a', 'before'))
    const { position, messages } = await adopted()
    expect(messages).toMatchObject([{ text: 'before' }])
    const text = 'elsewhere,\u2028on Node 24 too'
    await appendFile(log, line('b', 'ours') + line('c', text))
    const { bytes } = position as { bytes: number }
    expect(await since(bytes, ['b'])).toEqual([{ role: 'user', text, at: 0 }])
    expect(await findForked(backend, '"uuid":"c"', env)).toBe(log)
  })

  it('is none if there is a link to one outside of the agent’s folder, or to none', async () => {
    const elsewhere = join(root, 'secret.jsonl')
    await symlink(elsewhere, log)
    for (const text of [null, line('a', 'secret')]) {
      if (text !== null) await writeFile(elsewhere, text)
      expect(await since(0)).toBeNull()
      await expect(adopted()).rejects.toMatchObject({ code: 'invalid_field' })
    }
    expect(await findForked(backend, 'secret', env)).toBeNull()
  })

  it('is none if there is a pipe, which would hold up a thread', async () => {
    execFileSync('mkfifo', [log])
    expect(await since(-1)).toBeNull()
    await expect(adopted()).rejects.toMatchObject({ code: 'invalid_field' })
  })
})
