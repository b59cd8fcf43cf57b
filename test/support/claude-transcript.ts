/** Claude Code's own transcripts: a file of JSON lines for each session, chained by their ids. */
import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'

export type ClaudeTranscript = {
  readonly file: string
  /** Lines that follow none: a conversation has one. */
  readonly roots: number
  /** Lines that are followed by more than one: a conversation has none. */
  readonly forks: number
  /** Lines that are not in the conversation which the last one belongs to. */
  readonly lost: number
  /** What was said, in the order of the file. */
  readonly said: readonly string[]
}

/** All transcripts that there are in a `CLAUDE_CONFIG_DIR`. */
export async function claudeTranscripts(configFolder: string): Promise<ClaudeTranscript[]> {
  const projects = join(configFolder, 'projects')
  const names = await readdir(projects, { recursive: true }).catch(() => [])
  const files = names.filter((name) => name.endsWith('.jsonl')).map((name) => join(projects, name))
  return Promise.all(files.map(readTranscript))
}

async function readTranscript(file: string): Promise<ClaudeTranscript> {
  const lines = (await readFile(file, 'utf8')).split('\n').flatMap(parse)
  const chained = lines.filter(({ uuid }) => typeof uuid === 'string')
  const parents = chained.map(({ parentUuid }) => parentUuid as string | null)
  const followed = parents.filter((parent) => parent !== null)
  return {
    file,
    roots: parents.length - followed.length,
    forks: followed.length - new Set(followed).size,
    lost: chained.length - lineOf(chained).length,
    said: chained.flatMap(({ type, message }) =>
      type === 'user' || type === 'assistant' ? [textOf(message.content)] : [],
    ),
  }
}

/** The conversation, from its last line back to its first. */
function lineOf(chained: readonly any[]): any[] {
  const byId = new Map(chained.map((line) => [line.uuid, line]))
  const line = []
  for (let one = chained.at(-1); one !== undefined; one = byId.get(one.parentUuid)) line.push(one)
  return line
}

/** The last line may have been cut off by a kill. */
function parse(line: string): any[] {
  try {
    return [JSON.parse(line)]
  } catch {
    return []
  }
}

function textOf(content: any): string {
  return typeof content === 'string' ? content : content.map(({ text = '' }) => text).join('')
}
