/**
 * Tool calls that Codex refuses by itself, as when it may not ask. Neither `codex exec --json` nor
 * the app server reports them, but both write the reason to stderr, and the file of a thread has
 * the call.
 */
import { openWithin } from '../../platform/agent-files.ts'
import { asObject, asText, type JsonObject } from '../json.ts'

export type Refusal = { readonly at: string; readonly reason: string }

const LINE = /^(\S+Z)\s+ERROR\s+codex_core::tools\S*:\s+error=(.*)$/
/** A refusal by a policy; `rejected by user` is the answer to an ask. */
const BY_ITSELF =
  /approval policy|reject(ed)? (command|by policy)|forbidden|blocked by|not permitted/i
// oxlint-disable-next-line no-control-regex
const COLOUR = /\u001b\[[\d;]*m/g

/** Those in its stderr, in their order. */
export function refusalsIn(stderr: string): readonly Refusal[] {
  return stderr.split('\n').flatMap((line) => {
    const [, at, reason] = LINE.exec(line.replace(COLOUR, '')) ?? []
    if (at === undefined || reason === undefined || !BY_ITSELF.test(reason)) return []
    return [{ at, reason }]
  })
}

/** How much of the end of a thread's file is read. */
const TAIL_BYTES = 262_144

/** A refused call as it is recorded. */
export type Denial = { readonly tool?: string; readonly input?: unknown; readonly reason: string }

/** The file of a thread, as the child names it, and the child's home, in which it must lie. */
type ThreadFile = { readonly path: string; readonly home: string }

/** The refusals with the calls that they are about, as far as the thread's file has them. */
export async function denialsIn(
  { path, home }: ThreadFile,
  refusals: readonly Refusal[],
): Promise<readonly Denial[]> {
  // Without the file, which may be out of reach, the reason is all that is known.
  const lines = await tailOf(path, home).catch(() => [])
  const items = lines.map((line) => asObject(parsed(line)['payload']))
  return refusals.map(({ reason }) => {
    const output = items.findLast(
      ({ type, output: said }) => asText(type).endsWith('_output') && asText(said) === reason,
    )
    const call = items.find(
      ({ type, call_id: id }) => asText(type).endsWith('_call') && id === output?.['call_id'],
    )
    if (output === undefined || call === undefined) return { reason }
    const { name, arguments: given, input = parsed(asText(given)) } = call
    return { tool: asText(name), input, reason }
  })
}

async function tailOf(path: string, home: string): Promise<readonly string[]> {
  const file = await openWithin(path, [home])
  if (file === null) return []
  try {
    const { size } = await file.stat()
    const buffer = Buffer.alloc(Math.min(size, TAIL_BYTES))
    await file.read(buffer, 0, buffer.length, size - buffer.length)
    return buffer.toString('utf8').split('\n')
  } finally {
    await file.close()
  }
}

function parsed(line: string): JsonObject {
  try {
    return asObject(JSON.parse(line))
  } catch {
    // The line begins before the part that was read, or is still being written.
    return {}
  }
}
