/** A turn's input as the content of a message to Claude Code. */
import { chmod, mkdtemp, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { RunnerPart, RunnerTurn } from '../../core/index.ts'
import { base64 } from '../parts.ts'

/** A text, or blocks in the order of the parts. */
export async function contentOf({ text, parts }: RunnerTurn, cwd: string): Promise<unknown> {
  if (parts === undefined || parts.every(({ type }) => type === 'text')) return text
  const blocks: unknown[] = []
  for (const part of parts) blocks.push(await blockOf(part, cwd))
  return blocks
}

async function blockOf(part: RunnerPart, cwd: string): Promise<unknown> {
  if (part.type === 'text') return { type: 'text', text: part.text }
  const { mediaType, data } = part
  const source = {
    type: 'base64',
    media_type: mediaType,
    data: base64(data),
  }
  if (part.type === 'image') return { type: 'image', source }
  const { name } = part
  if (mediaType === 'application/pdf') return { type: 'document', title: name, source }
  const words = textOf(data)
  if (words !== null) {
    const plain = { type: 'text', media_type: 'text/plain', data: words }
    return { type: 'document', title: name, source: plain }
  }
  return { type: 'text', text: `[The attached file is ${await store(name, data, cwd)}]` }
}

/** Null if the bytes are no text. */
function textOf(data: Uint8Array): string | null {
  try {
    const text = new TextDecoder('utf-8', { fatal: true }).decode(data)
    return text.includes('\0') ? null : text
  } catch {
    // Not UTF-8.
    return null
  }
}

/** Writes it into a new folder in the working folder, so that it replaces nothing. */
async function store(name: string, data: Uint8Array, cwd: string): Promise<string> {
  const plain = name
    .replaceAll(/[^\p{L}\p{N}._-]+/gu, '_')
    .replace(/^\.+/, '')
    .slice(-128)
  const folder = await mkdtemp(join(cwd, 'attached-'))
  // The agent may run as another user.
  await chmod(folder, 0o755)
  const path = join(folder, plain || 'file')
  await writeFile(path, data, { flag: 'wx', mode: 0o644 })
  return path
}
