/** A turn's input as the content of a message to Claude Code. */
import type { RunnerPart, RunnerTurn } from '../../core/index.ts'
import { attachFile } from '../../platform/agent-files.ts'
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

/** Its name is a plain one for any shell. */
function store(name: string, data: Uint8Array, cwd: string): Promise<string> {
  const plain = name
    .replaceAll(/[^\p{L}\p{N}._-]+/gu, '_')
    .replace(/^\.+/, '')
    .slice(-128)
  return attachFile(cwd, plain || 'file', data)
}
