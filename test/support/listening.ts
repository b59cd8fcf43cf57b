/** Waiting for a server process to say where it listens. */
import type { ChildProcessByStdio } from 'node:child_process'
import { createInterface } from 'node:readline'
import type { Readable } from 'node:stream'

/**
 * The first address that it prints; throws if it ends before. Everything that it says, then and
 * later, goes to `output`.
 */
export async function listeningUrl(
  child: ChildProcessByStdio<null, Readable, Readable>,
  output: string[],
): Promise<string> {
  child.stderr.on('data', (chunk: Buffer) => output.push(chunk.toString()))
  const lines = createInterface({ input: child.stdout })
  const url = await new Promise<string | null>((resolve) => {
    // Not a loop that is left: the lines that came with the address would be lost.
    lines.on('line', (line) => {
      output.push(`${line}\n`)
      const found = /http:\/\/127\.0\.0\.1:\d+/.exec(line)?.[0]
      if (found !== undefined) resolve(found)
    })
    lines.once('close', () => resolve(null))
  })
  if (url !== null) return url
  throw new Error(`the server did not start:\n${output.join('')}`)
}
