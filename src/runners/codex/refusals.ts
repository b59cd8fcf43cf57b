/**
 * Tool calls that Codex refuses by itself, as when it may not ask. Neither `codex exec --json` nor
 * the app server reports them, but both write them to stderr.
 */

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
